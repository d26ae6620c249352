"""Where a picture stands on the page: it is renewed in place where it can be."""

from __future__ import annotations

from typing import Any, NamedTuple

import panel as pn

from graphdiag.dashboard import words
from graphdiag.dashboard.renewing import Change, Figure


class Drawn(NamedTuple):
    """A picture, or words in its place, and what makes it of the picture that stands there.

    ``changes`` is None where it must be put in its place.
    """

    picture: Figure | str
    changes: list[Change] | None


class Frame:
    """The place of a picture.

    Attributes
    ----------
    view
        What stands on the page.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown: Figure | str | None = None
        self.view = pn.Column(sizing_mode="stretch_width", stylesheets=[words.style()])

    def drawn(self, figure: Any) -> Drawn:
        """Return what to show of a new figure, or of words; it takes a while, in any thread."""
        if isinstance(figure, str):
            return Drawn(figure, [] if figure == self._shown else None)
        figure.css_classes = ["plot", self._name]
        picture = Figure(figure)
        before = self._shown
        return Drawn(picture, before.changes_to(picture) if isinstance(before, Figure) else None)

    def show(self, drawn: Drawn) -> None:
        """Show what was drawn last."""
        picture, changes = drawn
        if changes is not None:
            if isinstance(self._shown, Figure):
                self._shown.apply(changes)
            return
        self._shown = picture
        self.view.objects = [_words(picture) if isinstance(picture, str) else _pane(picture.figure)]

    def mark(self, *, pale: bool) -> None:
        """Make it pale where it is of what was chosen before."""
        self.view.css_classes = ["pale"] if pale else []


def _words(text: str) -> pn.pane.HTML:
    told = f'<div class="empty">{text}</div>'
    return pn.pane.HTML(told, stylesheets=[words.style()], sizing_mode="stretch_width")


def _pane(figure: Any) -> pn.pane.Bokeh:
    return pn.pane.Bokeh(figure, height=figure.height, sizing_mode="stretch_width")
