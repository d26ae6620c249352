"""What differs between two runs' configurations."""

from __future__ import annotations

from typing import Any

from graphdiag.comparison.answer import Difference
from graphdiag.metrics import graph_bytes
from graphdiag.runconfig import SENTENCES, last_config
from graphdiag.summary import Summary

_APART = (*SENTENCES, "hooks", "importer", "sampled", "sample_every", "simulated")
"""Keys that say how a run was recorded, not what it was."""

_FIRST = (
    *("engine", "engine_version", "mode", "capture_sizes", "padding", "graphs_off"),
    *("kv_tokens", "graph_bytes", "max_num_seqs", "token_budget", "speculative_tokens", "lora"),
    *("tensor_parallel", "data_parallel", "device", "driver", "torch"),
)
"""Keys that change what a step takes, in the order a person would ask for them."""


def differences(base: Summary, candidate: Summary) -> list[Difference]:
    """Return the configuration keys that differ, those that change what a step takes first."""
    before, after = (_told(summary) for summary in (base, candidate))
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    keys.sort(key=lambda key: (_FIRST.index(key) if key in _FIRST else len(_FIRST), key))
    return [Difference(key=key, base=before.get(key), candidate=after.get(key)) for key in keys]


def _told(summary: Summary) -> dict[str, Any]:
    config = {key: value for key, value in last_config(summary.events).items() if key not in _APART}
    held = graph_bytes(summary.events)
    return config if held is None else {**config, "graph_bytes": held}
