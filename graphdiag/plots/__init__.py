"""Pictures for a page or a notebook: functions from finished values to HoloViews (Bokeh) objects.

In a notebook, ``holoviews.extension("bokeh")`` shows them. What a source cannot tell is a
:class:`holoviews.Div` of words that say how to record it.
"""

from graphdiag.plots.bucket_costs import cost_by_size
from graphdiag.plots.bucket_frontier import frontier
from graphdiag.plots.bucket_sizes import padding_by_size, requested_sizes

__all__ = ["cost_by_size", "frontier", "padding_by_size", "requested_sizes"]
