"""Draw ``docs/report.svg``, the README's picture: ``python docs/pictures.py``."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.text import Text

from graphdiag.diagnosis import diagnose
from graphdiag.reporters.text import render
from graphdiag.sources import open_source

ROOT = Path(__file__).parents[1]
SAMPLE = "sample_traces/doubling_ladder.parquet"
LINES = 46


def main() -> None:
    """Render the sample's report as a terminal shows it, its first lines."""
    with open_source([str(ROOT / SAMPLE)]) as trace:
        report = diagnose(trace, SAMPLE)
    shown = render(report, width=92, color=True).splitlines()[:LINES]
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    console.print(f"$ graphdiag report {SAMPLE}", style="bold", highlight=False)
    console.print(Text.from_ansi("\n".join(shown)))
    console.save_svg(str(ROOT / "docs" / "report.svg"), title="graphdiag report")


if __name__ == "__main__":
    main()
