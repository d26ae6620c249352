"""One trace on the page: its selectors, words, pictures and bucket editor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import panel as pn

from graphdiag.dashboard import words
from graphdiag.dashboard.editor import Editor
from graphdiag.dashboard.frames import Drawn, Frame
from graphdiag.dashboard.pictures import drawn, selectable, tappable
from graphdiag.dashboard.stages import Desk, Stage, State
from graphdiag.dashboard.state import Choice, Found, count, find
from graphdiag.dashboard.watching import Watched
from graphdiag.findings import Metrics
from graphdiag.plots import pictures
from graphdiag.plots.picture import Picture, Words
from graphdiag.selection import Selection
from graphdiag.timerange import TimeRange, parse_window

_NUMBERS = Desk("graphdiag-numbers")
_FINDINGS = Desk("graphdiag-findings", rest=3)
_PICTURES = Desk("graphdiag-pictures", rest=4)
_WINDOW_HINT = "10..20 (seconds)"
PICTURES: dict[str, tuple[str, str, Callable[[Found], Picture | Words]]] = {
    "times": (
        "Step time over time",
        "Drag along it to select a stretch: everything below is of that stretch alone. Grey is "
        "start-up, and what lies outside of a selected stretch; the lane on top marks captures and "
        "compilations.",
        lambda found: pictures.step_times(found.whole),
    ),
    "outcomes": (
        "Outcome over time",
        "All steps of a stretch of time are 100 %: exact replays, padded ones, and those that fell "
        "back, by reason.",
        lambda found: pictures.outcomes_over_time(found.chosen),
    ),
    "sizes": (
        "Requested sizes",
        "A bar is the steps that asked for a size, orange what was padding, red what ran eager. "
        "Tap a size to add it to the list below, or to drop it.",
        lambda found: pictures.sizes_served(found.report),
    ),
    "ledger": (
        "Where a step's time goes",
        "From the best achievable each row adds what one case costs a step; a dark line is a 95 % "
        "interval.",
        lambda found: pictures.step_ledger(found.report),
    ),
}
"""Title, how to read it, and the plot, from top to bottom."""


class TraceView:
    """A column of the page; :meth:`update` brings it up to date.

    ``wake`` has :meth:`update` called soon; any thread may call it.

    Attributes
    ----------
    view
        What stands on the page.
    stages
        What it waits for: ``numbers``, ``findings``, and the pictures by name.
    """

    def __init__(self, source: Watched, wake: Callable[[], None]) -> None:
        self._source, self.choice = source, Choice()
        self._found: Found | None = None
        self._trouble: str | None = None
        self._numbers: Stage[Metrics] = Stage(_NUMBERS, self._show_numbers, wake)
        self._findings: Stage[Found] = Stage(_FINDINGS, self._show_findings, wake)
        sheets = [words.asset("widgets.css")]
        self._words = {
            name: pn.pane.HTML(stylesheets=[words.style()], sizing_mode="stretch_width")
            for name in ("status", "refused", "verdict", "tiles", "window", "advice")
        }
        self._editor = Editor(self.choice)
        self._frames = {name: Frame(name) for name in PICTURES}
        self._pictures: dict[str, Stage[Drawn]] = {
            name: Stage(_PICTURES, frame.show, wake) for name, frame in self._frames.items()
        }
        self.stages: dict[str, Stage[Any]] = {
            "numbers": self._numbers,
            "findings": self._findings,
            **self._pictures,
        }
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
        self.choice.param.watch(lambda _: wake(), ["window", "rank", "phase", "runner"])
        self.view = pn.Column(
            self._words["status"],
            pn.FlexBox(*self._selectors, self._window, self._all, align_items="end", gap="0 8px"),
            self._words["refused"],
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

        Called again and again, it never waits: numbers, findings and pictures are computed in
        threads, and are there in this order.
        """
        source, chosen = self._source, self.choice.selection()
        for stage in self.stages.values():
            try:
                stage.take()
            except Exception as error:  # one trace's trouble is not the page's
                self._trouble = f"This cannot be shown ({type(error).__name__}: {error})."
        if source.version:
            state = State(source.version, chosen)
            self._numbers.want(state, self._count)
            if not self._numbers.is_computing:  # which would take longer beside it
                self._findings.want(state, self._find)
        found, shown = self._found, self._findings.shown
        is_free = not _FINDINGS.is_pressed  # findings of the next trace, too, come before pictures
        if is_free and found is not None and shown is not None and shown.choice == chosen:
            for name, picture in self._pictures.items():
                wanted = State(shown.version, (chosen, dark))
                picture.want(wanted, partial(self._draw, name, found, wanted, dark=dark))
        self._mark(chosen, dark=dark)

    def _count(self) -> tuple[State, Metrics]:
        sums, chosen = self._source.sums, self.choice.selection()
        assert sums is not None
        return State(sums.version, chosen), count(sums, chosen)

    def _find(self) -> tuple[State, Found]:
        sums, chosen = self._source.sums, self.choice.selection()
        assert sums is not None
        return State(sums.version, chosen), find(sums, self._source.name, chosen)

    def _draw(self, name: str, found: Found, state: State, *, dark: bool) -> tuple[State, Drawn]:
        figure = drawn(PICTURES[name][2](found), dark=dark)
        if name == "times" and not isinstance(figure, str):
            selectable(figure, found.chosen.window, self._select)
        if name == "sizes" and not isinstance(figure, str):
            tappable(figure, self._editor.toggle)
        return state, self._frames[name].drawn(figure)

    def _show_numbers(self, metrics: Metrics) -> None:
        self._words["tiles"].object = words.tiles(metrics)

    def _show_findings(self, found: Found) -> None:
        self._found, self._trouble = found, None
        self.choice.offer(found)
        self._words["verdict"].object = words.verdict(found)
        self._words["window"].object = words.window(found)
        self._words["advice"].object = words.advised(found)
        self._editor.show(found)

    def _mark(self, chosen: Selection, *, dark: bool) -> None:
        """Say what the page is doing, and make pale what is of a choice before."""
        source, old = self._source, self._findings.is_of_another(chosen)
        self._words["status"].object = words.status(
            source.name,
            self._found,
            source.error or self._trouble,
            grows=source.grows,
            computing=old,
        )
        pale = {"tiles": self._numbers.is_of_another(chosen)}
        pale |= dict.fromkeys(("verdict", "window", "advice"), old)
        for name, is_pale in pale.items():
            self._words[name].css_classes = ["pale"] if is_pale else []
        self._editor.view.css_classes = ["pale"] if old else []
        for name, stage in self._pictures.items():
            if name != "times":  # it is of all time, whatever was selected of it
                self._frames[name].mark(pale=stage.is_of_another((chosen, dark)))

    def _section(self, name: str) -> list[Any]:
        title, reading, _ = PICTURES[name]
        return [_heading(title, reading), self._frames[name].view]

    def _select(self, window: TimeRange | None) -> None:
        self._window.value = ""  # which asks for the whole trace, and so comes first
        self.choice.window = window
        self._refuse("")

    def _typed(self, _: object) -> None:
        text, sums = self._window.value.strip(), self._source.sums
        if self._found is None or sums is None:
            return
        window, trouble = None, ""
        if text:
            try:
                window = parse_window(text).over(self._found.first_ns)
            except ValueError as error:
                trouble = str(error)
            if window is not None and sums.span is not None and not window.meets(*sums.span):
                trouble = f"No step began {window.words()}."
        if not trouble:
            self.choice.window = window
        self._refuse(trouble)

    def _refuse(self, trouble: str) -> None:
        """Say why what was typed is no window, and that the figures are not of it."""
        self._words["refused"].object = words.refused(trouble)


def _heading(title: str, reading: str) -> pn.pane.HTML:
    text = f'<h2>{title}</h2><p class="reading">{reading}</p>'
    return pn.pane.HTML(
        text, stylesheets=[words.style()], sizing_mode="stretch_width", margin=(14, 10, 0, 10)
    )
