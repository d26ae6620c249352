"""The bucket editor: sizes to switch on and off, and what the list then gives."""

from __future__ import annotations

import re

import panel as pn

from graphdiag.buckets.whatif import WhatIf
from graphdiag.dashboard import words
from graphdiag.dashboard.state import Choice, Found

_MOST_OFFERED = 160
"""Sizes that are offered as buttons; others are typed."""
_PADDED = 8
_OTHER = "Another size"
_LARGEST = 1 << 20


class Editor:
    """Buttons for sizes, a field for others, and the table of what they give.

    Attributes
    ----------
    view
        What stands on the page.
    """

    def __init__(self, choice: Choice) -> None:
        sheets = [words.asset("widgets.css")]
        self._choice = choice
        self._found: Found | None = None
        self._buttons = pn.widgets.CheckButtonGroup(
            options=[],
            value=[],
            stylesheets=sheets,
            css_classes=["sizes"],
            sizing_mode="stretch_width",
        )
        self._other = pn.widgets.TextInput(name=_OTHER, width=230, stylesheets=sheets)
        self._reset = pn.widgets.Button(
            name="Back to the current list", stylesheets=sheets, width=190
        )
        self._table = pn.pane.HTML(stylesheets=[words.style()], sizing_mode="stretch_width")
        self._quiet = False
        self._buttons.param.watch(self._switched, "value")
        self._other.param.watch(self._typed, "value")
        self._reset.on_click(lambda _: choice.param.update(sizes=None))
        choice.param.watch(lambda _: self.show(self._found), "sizes")
        self.view = pn.Column(
            self._buttons,
            pn.FlexBox(self._other, self._reset, align_items="end"),
            self._table,
            sizing_mode="stretch_width",
        )

    def show(self, found: Found | None) -> None:
        """Show what the chosen list gives on the traffic of ``found``."""
        self._found = found
        what_if = None if found is None else found.buckets
        self.view.visible = what_if is not None
        if what_if is None or found is None:
            return
        sizes = self._sizes(what_if)
        self._quiet = True
        self._buttons.param.update(options=self._offered(what_if, found, sizes), value=sizes)
        self._quiet = False
        now = what_if.priced(what_if.current) if what_if.current else None
        self._table.object = words.edited(now, what_if.priced(sizes), what_if.notes)

    def toggle(self, size: int) -> None:
        """Add a size to the list, or drop it."""
        if self._found is None or self._found.buckets is None or size < 1:
            return
        sizes = self._sizes(self._found.buckets)
        changed = [one for one in sizes if one != size] if size in sizes else [*sizes, size]
        self._choice.sizes = tuple(sorted(changed))

    def _sizes(self, what_if: WhatIf) -> list[int]:
        chosen = self._choice.sizes
        return what_if.current if chosen is None else list(chosen)

    def _offered(self, what_if: WhatIf, found: Found, sizes: list[int]) -> list[int]:
        """Return sizes worth a button: current, chosen, recommended, and those padded most."""
        told = found.report.recommendation
        offered = {*what_if.current, *sizes, *(told.buckets if told else ())}
        offered |= set(what_if.most_padded(_PADDED))
        return sorted(offered)[:_MOST_OFFERED]

    def _switched(self, _: object) -> None:
        if not self._quiet:
            self._choice.sizes = tuple(sorted(self._buttons.value))

    def _typed(self, _: object) -> None:
        text = self._other.value.strip()
        if not text or self._found is None or self._found.buckets is None:
            return
        try:
            size = read_size(text)
        except ValueError as error:
            self._other.name = f"{_OTHER}: {error}"
            return
        sizes = self._sizes(self._found.buckets)
        self._other.param.update(value="", name=_OTHER)
        self._choice.sizes = tuple(sorted({*sizes, size}))


def read_size(text: str) -> int:
    """Return the size that a person typed.

    Raises
    ------
    ValueError
        When it is no size to capture; the sentence says why.
    """
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{text[:20]} is no whole number from 1 to {_LARGEST:,}.")
    size = int(text)
    if not 1 <= size <= _LARGEST:
        raise ValueError(f"{size} is not from 1 to {_LARGEST:,}.")
    return size
