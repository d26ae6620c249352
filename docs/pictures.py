"""Draw the README's pictures, ``report.svg`` and ``page.png``: ``python docs/pictures.py``.

The page needs Chromium (``GRAPHDIAG_CHROMIUM``, or one on the PATH), playwright and pillow.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from graphdiag.bucket_advice import plan_beside
from graphdiag.diagnosis import diagnose, report_of
from graphdiag.reporters import report_html
from graphdiag.reporters.text import render
from graphdiag.sources import open_source
from graphdiag.summary import summarize

ROOT = Path(__file__).parents[1]
SAMPLE = "sample_traces/practice_cpu_graphs.parquet"
LINES = 46
PAGE = "sample_traces/trap_cpu.parquet"
SIZE = {"width": 1000, "height": 1470}
COLORS = 256


def main() -> None:
    """Render both pictures."""
    terminal()
    page()


def terminal() -> None:
    """Render a sample's report as a terminal shows it, its first lines."""
    with open_source([str(ROOT / SAMPLE)]) as trace:
        report = diagnose(trace, SAMPLE)
    shown = render(report, width=92, color=True).splitlines()[:LINES]
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    console.print(f"$ graphdiag report {SAMPLE}", style="bold", highlight=False)
    console.print(Text.from_ansi("\n".join(shown)))
    console.save_svg(str(ROOT / "docs" / "report.svg"), title="graphdiag report")


def page() -> None:
    """Render the top of a sample's page as a browser shows it."""
    with open_source([str(ROOT / PAGE)]) as trace:
        summary = summarize(trace)
    report = report_of(summary, PAGE)
    text = report_html.render(report, summary, plan_beside(report, summary))
    chromium = os.environ.get("GRAPHDIAG_CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(text, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport=SIZE)
        tab.goto(path.as_uri())
        tab.wait_for_selector("html[data-drawn]")
        tab.wait_for_timeout(500)
        image = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        browser.close()
    small = image.quantize(COLORS, dither=Image.Dither.NONE)
    small.save(ROOT / "docs" / "page.png", optimize=True)


if __name__ == "__main__":
    main()
