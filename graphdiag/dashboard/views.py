"""One trace on the page: its selectors, words, pictures and bucket editor."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import panel as pn

from graphdiag import plots
from graphdiag.dashboard import words
from graphdiag.dashboard.editor import Editor
from graphdiag.dashboard.pictures import drawn, selectable, tappable
from graphdiag.dashboard.state import Choice, Found, count, find
from graphdiag.dashboard.watching import Watched
from graphdiag.findings import Metrics
from graphdiag.selection import Selection
from graphdiag.timerange import TimeRange, parse_window

_THREADS = ThreadPoolExecutor(2, thread_name_prefix="graphdiag-page")
DRAWS_EVERY_S = 4
"""Seconds that pictures of a growing trace stay, so that a drag over one is not cut short."""
_WINDOW_HINT = "10..20 (seconds)"
PICTURES: dict[str, tuple[str, str, Callable[[Found], Any]]] = {
    "times": (
        "Step time over time",
        "Drag along it to select a stretch: everything below is of that stretch alone. Grey is "
        "start-up; the lane on top marks captures and compilations.",
        lambda found: plots.step_times(found.whole),
    ),
    "outcomes": (
        "Outcome over time",
        "All steps of a stretch of time are 100 %: exact replays, padded ones, and those that fell "
        "back, by reason.",
        lambda found: plots.outcomes_over_time(found.chosen),
    ),
    "sizes": (
        "Requested sizes",
        "A bar is the steps that asked for a size, orange what was padding, red what ran eager. "
        "Tap a size to add it to the list below, or to drop it.",
        lambda found: plots.sizes_served(found.report),
    ),
    "ledger": (
        "Where a step's time goes",
        "From the best achievable each row adds what one case costs a step; a dark line is a 95 % "
        "interval.",
        lambda found: plots.step_ledger(found.report),
    ),
}
"""Title, how to read it, and the plot, from top to bottom."""


class TraceView:
    """A column of the page; :meth:`update` brings it up to date.

    Attributes
    ----------
    view
        What stands on the page.
    """

    def __init__(self, source: Watched) -> None:
        self._source, self.choice = source, Choice()
        self._found: Found | None = None
        self._counted: tuple[Any, ...] | None = None
        self._shown: tuple[Any, ...] | None = None
        self._drawn: tuple[Any, ...] | None = None
        self._draws_after = 0.0
        self._trouble: str | None = None
        self._counting: Future[Metrics] | None = None
        self._looking: Future[tuple[Found, dict[str, Any]]] | None = None
        sheets = [words.asset("widgets.css")]
        self._words = {
            name: pn.pane.HTML(stylesheets=[words.style()], sizing_mode="stretch_width")
            for name in ("status", "verdict", "tiles", "window", "advice")
        }
        self._pictures = {name: pn.Column(sizing_mode="stretch_width") for name in PICTURES}
        self._editor = Editor(self.choice)
        self._selectors = [
            pn.widgets.Select.from_param(
                self.choice.param[name], width=120, stylesheets=sheets, css_classes=[name]
            )
            for name in ("rank", "phase", "runner")
        ]
        self._window = pn.widgets.TextInput(
            name="Window", placeholder=_WINDOW_HINT, width=230, stylesheets=sheets
        )
        self._all = pn.widgets.Button(name="Whole trace", width=110, stylesheets=sheets)
        self._window.param.watch(self._typed, "value")
        self._all.on_click(lambda _: self._select(None))
        self.view = pn.Column(
            self._words["status"],
            pn.FlexBox(*self._selectors, self._window, self._all, align_items="end", gap="0 8px"),
            self._words["window"],
            *self._section("times"),
            self._words["tiles"],
            self._words["verdict"],
            *self._section("sizes"),
            _heading("Bucket list", "Switch sizes on and off; the table says what the list gives."),
            self._editor.view,
            *self._section("outcomes"),
            *self._section("ledger"),
            self._words["advice"],
            css_classes=["trace"],
            sizing_mode="stretch_width",
            min_width=320,
        )

    def update(self, *, dark: bool) -> None:
        """Show what was found since, and have what is not yet known looked for meanwhile.

        Called again and again, it never waits: numbers and findings are computed in threads, and
        the numbers are there first.
        """
        source = self._source
        try:
            self._take()
        except Exception as error:  # one trace's trouble is not the page's
            self._trouble = f"This cannot be shown ({type(error).__name__}: {error})."
        trouble = source.error or self._trouble
        told = words.status(source.name, self._found, trouble, grows=source.grows)
        self._words["status"].object = told
        whole, chosen = self.choice.selection(whole=True), self.choice.selection()
        if not source.version:
            return
        if self._counting is None and self._counted != (source.version, chosen):
            self._counted = (source.version, chosen)
            self._counting = _THREADS.submit(count, source, chosen)
        wanted = (source.version, chosen, dark)
        same = self._drawn is not None and self._drawn[1:] == (chosen, dark)
        draws = self._drawn != wanted and not (same and time.monotonic() < self._draws_after)
        if self._looking is None and (wanted != self._shown or draws):
            self._shown = wanted
            if draws:
                self._drawn, self._draws_after = wanted, time.monotonic() + DRAWS_EVERY_S
            self._looking = _THREADS.submit(self._computed, whole, chosen, dark if draws else None)

    def _take(self) -> None:
        """Show what the threads have found."""
        if self._counting is not None and self._counting.done():
            counted, self._counting = self._counting, None
            self._words["tiles"].object = words.tiles(counted.result())
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            self._show(*looked.result())
            self._trouble = None

    def _computed(
        self, whole: Selection, chosen: Selection, dark: bool | None
    ) -> tuple[Found, dict[str, Any]]:
        """Return what was found, and the pictures of it unless ``dark`` is None."""
        found = find(self._source, whole, chosen)
        if dark is None:
            return found, {}
        return found, {
            name: drawn(plot(found), dark=dark) for name, (_, _, plot) in PICTURES.items()
        }

    def _show(self, found: Found, figures: dict[str, Any]) -> None:
        self._found = found
        self.choice.offer(found)
        for name, figure in figures.items():
            if isinstance(figure, str):
                told = f'<div class="empty">{figure}</div>'
                self._pictures[name].objects = [
                    pn.pane.HTML(told, stylesheets=[words.style()], sizing_mode="stretch_width")
                ]
                continue
            figure.css_classes = ["plot", name]
            if name == "times":
                selectable(figure, found.chosen.window, self._select)
            if name == "sizes":
                tappable(figure, self._editor.toggle)
            self._pictures[name].objects = [
                pn.pane.Bokeh(figure, height=figure.height, sizing_mode="stretch_width")
            ]
        self._words["verdict"].object = words.verdict(found)
        self._words["window"].object = words.window(found)
        self._words["advice"].object = words.advised(found)
        self._editor.show(found)

    def _section(self, name: str) -> list[Any]:
        title, reading, _ = PICTURES[name]
        return [_heading(title, reading), self._pictures[name]]

    def _select(self, window: TimeRange | None) -> None:
        self.choice.window = window
        self._window.param.update(value="", name="Window")

    def _typed(self, _: object) -> None:
        text = self._window.value
        if not text or self._found is None:
            return
        try:
            window = parse_window(text).over(self._found.first_ns)
        except ValueError:
            self._window.name = "Window: give START..END"
            return
        with self._source.lock:
            span = self._source.live.span
        if span is not None and not window.meets(*span):
            self._window.name = f"Window: no step began {window.words()}"
            return
        self.choice.window = window
        self._window.name = "Window"


def _heading(title: str, reading: str) -> pn.pane.HTML:
    text = f'<h2>{title}</h2><p class="reading">{reading}</p>'
    return pn.pane.HTML(
        text, stylesheets=[words.style()], sizing_mode="stretch_width", margin=(14, 10, 0, 10)
    )
