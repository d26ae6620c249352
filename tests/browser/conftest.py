"""Pages in a real Chromium, without a screen and without a network.

The browser is ``GRAPHDIAG_CHROMIUM`` or one on the PATH; without one these tests skip, and with
``GRAPHDIAG_BROWSER_REQUIRED`` they fail. Screenshots are kept in ``build/screenshots``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, sync_playwright
from playwright.sync_api import Page as Tab

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# As root, as in a container, Chromium needs no-sandbox; the others keep it from calling home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
DESKTOP = {"viewport": {"width": 1100, "height": 900}}
PHONE = {
    "viewport": {"width": 360, "height": 700},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}

TOUCHED = """() => {
  const found = [];
  const walk = (root) => {
    for (const element of root.querySelectorAll("*")) {
      const tool = element.closest(".bk-OnOffButton, .bk-ClickButton");
      if (!tool && getComputedStyle(element).touchAction === "none") found.push(element.className);
      if (element.shadowRoot) walk(element.shadowRoot);
    }
  };
  walk(document);
  return found;
}"""
"""Script: what in the page takes touches for itself, so that a finger on it does not scroll."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, started once; a test that needs it skips where there is none."""
    found = os.environ.get("GRAPHDIAG_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if not found:
        words = (
            "needs Chromium (Debian: apt-get install chromium), or its path in GRAPHDIAG_CHROMIUM"
        )
        if os.environ.get("GRAPHDIAG_BROWSER_REQUIRED"):
            pytest.fail(words)
        pytest.skip(words)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


class Shown:
    """A page in a tab, with what it asked the network for and what it complained of."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.requests: list[str] = []
        self.complaints: list[str] = []
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path) -> None:
        """Open a page and wait until its pictures are drawn."""
        self.tab.goto(path.as_uri())
        self.tab.wait_for_selector("html[data-drawn]", timeout=30_000)
        self.tab.wait_for_timeout(300)  # Bokeh paints in the next frames

    @property
    def plots(self) -> list[Locator]:
        return self.tab.locator(".plot").all()

    def keep(self, name: str) -> None:
        """Keep a screenshot of the whole page as build output."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def hover(self, plot: Locator, color: str, top: int = 60) -> str:
        """Move the pointer to where ``plot`` has most of ``color``; return what it then tells.

        Tools and legend take the ``top`` pixels.
        """
        plot.scroll_into_view_if_needed()
        column, row = _tallest(pixels(plot), color, top)
        box = plot.bounding_box()
        assert box is not None
        self.tab.mouse.move(box["x"] + column - 3, box["y"] + row)
        self.tab.mouse.move(box["x"] + column, box["y"] + row, steps=3)
        tooltip = self.tab.locator(".bk-tooltip-content").first
        tooltip.wait_for(timeout=10_000)
        return tooltip.inner_text()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Shown]]:
    """Open a page in a new tab, the network off; keyword arguments are the context's."""
    yield from _opening(browser, tmp_path)


@pytest.fixture(scope="module")
def keep_open(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Shown]]:
    """As ``show``, for a page that all tests of a module look at."""
    yield from _opening(browser, tmp_path_factory.mktemp("pages"))


def _opening(browser: Browser, folder: Path) -> Iterator[Callable[..., Shown]]:
    contexts = []

    def open_page(text: str, **context: Any) -> Shown:
        path = folder / f"page-{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(offline=True, **{**DESKTOP, **context}))
        shown = Shown(contexts[-1].new_page())
        shown.open(path)
        return shown

    yield open_page
    for context in contexts:
        context.close()


def pixels(plot: Locator) -> np.ndarray:
    """Return what an element looks like: rows x columns x RGB, in CSS pixels."""
    image = Image.open(BytesIO(plot.screenshot(scale="css"))).convert("RGB")
    return np.asarray(image).astype(np.int16)


def count(image: np.ndarray, color: str) -> int:
    """Return how many pixels are of a colour such as ``#0072b2``, or nearly."""
    return int(_near(image, color).sum())


def _near(image: np.ndarray, color: str) -> np.ndarray:
    wanted = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    return (np.abs(image - wanted) <= 6).all(axis=2)


def _tallest(image: np.ndarray, color: str, top: int) -> tuple[int, int]:
    """Return the column with most of a colour below ``top``, and the middle row of it."""
    near = _near(image, color)
    near[:top] = False
    column = int(near.sum(axis=0).argmax())
    rows = np.flatnonzero(near[:, column])
    assert len(rows), f"no {color} in the picture"
    return column, int(rows[len(rows) // 2])
