"""Every picture as what it shows, for whatever draws it."""

from graphdiag.plots.artifacts_served import artifacts_served
from graphdiag.plots.both_ledgers import ledgers_of_both
from graphdiag.plots.both_outcomes import outcomes_of_both
from graphdiag.plots.both_sizes import costs_of_both, sizes_of_both
from graphdiag.plots.both_times import step_times_of_both
from graphdiag.plots.bucket_costs import cost_by_size
from graphdiag.plots.bucket_frontier import frontier
from graphdiag.plots.bucket_sizes import padding_by_size, requested_sizes
from graphdiag.plots.change_terms import change_terms
from graphdiag.plots.gpu_steps import gpu_launches, gpu_times
from graphdiag.plots.outcomes_over_time import outcomes_over_time
from graphdiag.plots.sizes_served import sizes_served
from graphdiag.plots.step_ledger import step_ledger
from graphdiag.plots.step_times import step_times

__all__ = [
    "artifacts_served",
    "change_terms",
    "cost_by_size",
    "costs_of_both",
    "frontier",
    "gpu_launches",
    "gpu_times",
    "ledgers_of_both",
    "outcomes_of_both",
    "outcomes_over_time",
    "padding_by_size",
    "requested_sizes",
    "sizes_of_both",
    "sizes_served",
    "step_ledger",
    "step_times",
    "step_times_of_both",
]
