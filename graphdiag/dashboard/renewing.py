"""A picture that is drawn anew, brought to what stands on the page by what differs alone.

A browser takes a while to build a picture, and loses where a reader had zoomed to. Of a trace that
grows the next picture mostly has the same parts with other figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from bokeh.model import Model
from bokeh.models import Range1d

_OWN = frozenset({"id", "name", "tags", "subscribed_events", "js_event_callbacks"})
"""Properties that differ between any two pictures, and mean nothing to a reader."""


class Change(NamedTuple):
    """A property of a model on the page, and its new value."""

    model: Model
    name: str
    value: Any


class Figure:
    """A Bokeh figure, and its properties as it was drawn.

    Attributes
    ----------
    figure
        What stands on the page, or may.
    """

    def __init__(self, figure: Model) -> None:
        self.figure = figure
        self._told = {
            model: model.properties_with_values(include_defaults=False)
            for model in figure.references()
        }

    def changes_to(self, other: Figure) -> list[Change] | None:
        """Return what makes this picture look like ``other``; None where its parts are others."""
        changes: list[Change] = []
        met: dict[Model, Model] = {}
        waiting: list[tuple[Model, Model]] = [(self.figure, other.figure)]
        while waiting:
            mine, theirs = waiting.pop()
            if mine in met or type(mine) is not type(theirs):
                if met.get(mine) is theirs:
                    continue
                return None
            met[mine] = theirs
            before, after = self._told[mine], other._told[theirs]
            for name in (before.keys() | after.keys()) - _OWN:
                old, new = (
                    told[name] if name in told else getattr(model, name)
                    for told, model in ((before, mine), (after, theirs))
                )
                inner, other_inner = _models(old), _models(new)
                if len(inner) != len(other_inner):
                    return None
                waiting += zip(inner, other_inner, strict=True)
                if not inner and not _same(old, new):
                    changes.append(Change(mine, name, new))
        return changes

    def apply(self, changes: Sequence[Change]) -> None:
        """Make changes on the page, which is held meanwhile; an axis that was zoomed stays so."""
        zoomed = {
            model
            for model in self._told
            if isinstance(model, Range1d)
            and (model.start, model.end) != (model.reset_start, model.reset_end)
        }
        for model, name, value in changes:
            plain = dict(value) if isinstance(value, Mapping) else value
            self._told[model][name] = plain
            if not (model in zoomed and name in ("start", "end")):
                setattr(model, name, plain)


def _models(value: Any) -> list[Model]:
    """Return the models that a property's value is made of."""
    if isinstance(value, Model):
        return [value]
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [model for model in value if isinstance(model, Model)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return bool(one == other or (one != one and other != other))  # NaN is the same NaN
