"""Run every benchmark and print one table: ``python benchmarks/run.py [NAME...]``.

Figures are medians; CPU seconds are user plus system time. Each row stands beside the figure to
reach and the yardstick that was measured in the same run.
"""

from __future__ import annotations

import argparse
import platform
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

NAMES = ("recording", "kineto", "logs", "summary", "dashboard", "buckets", "pages", "startup")
ENGINES = ("torch_hooks", "experiment", "vllm_hook", "sglang_hook")
"""Run when named: they need torch, vLLM, or for SGLang the extra ``metrics``; see their pages."""


def main() -> None:
    """Run the benchmarks named, by default all that need no engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, *ENGINES, []], default=list(NAMES))
    table = Table(title=f"Python {platform.python_version()}, {platform.machine()}", box=None)
    for header, side in (("what", "left"), ("figure", "right"), ("reach", "left")):
        table.add_column(header, justify="right" if side == "right" else "left")
    table.add_column("yardstick, same run")
    for name in parser.parse_args().names:
        for row in import_module(name).rows():
            table.add_row(row.what, f"{row.figure:,.3g} {row.unit}", row.reach, row.yardstick)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
