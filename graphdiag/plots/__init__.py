"""Pictures for a notebook: functions from finished values to HoloViews (Bokeh) objects.

In a notebook, ``holoviews.extension("bokeh")`` shows them. What a source cannot tell is a
:class:`holoviews.Div` of words that say how to record it. A page draws the same pictures, those of
:mod:`graphdiag.plots.pictures`, without HoloViews: importing it would take longer than drawing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from graphdiag.plots import pictures
from graphdiag.plots.picture import Picture, Words

if TYPE_CHECKING:
    import holoviews as hv

Told = ParamSpec("Told")


def _shown(draw: Callable[Told, Picture | Words]) -> Callable[Told, hv.Overlay | hv.Div]:
    @wraps(draw)
    def shown(*args: Told.args, **kwargs: Told.kwargs) -> hv.Overlay | hv.Div:
        from graphdiag.plots.elements import element

        return element(draw(*args, **kwargs))

    return shown


artifacts_served = _shown(pictures.artifacts_served)
change_terms = _shown(pictures.change_terms)
cost_by_size = _shown(pictures.cost_by_size)
costs_of_both = _shown(pictures.costs_of_both)
frontier = _shown(pictures.frontier)
gpu_launches = _shown(pictures.gpu_launches)
gpu_times = _shown(pictures.gpu_times)
ledgers_of_both = _shown(pictures.ledgers_of_both)
outcomes_of_both = _shown(pictures.outcomes_of_both)
outcomes_over_time = _shown(pictures.outcomes_over_time)
padding_by_size = _shown(pictures.padding_by_size)
requested_sizes = _shown(pictures.requested_sizes)
sizes_of_both = _shown(pictures.sizes_of_both)
sizes_served = _shown(pictures.sizes_served)
step_ledger = _shown(pictures.step_ledger)
step_times = _shown(pictures.step_times)
step_times_of_both = _shown(pictures.step_times_of_both)

__all__ = [*pictures.__all__]
