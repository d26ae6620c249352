"""What marks are called: the ``kind`` of a ``mark`` event, and what its row says.

Apart from :mod:`graphdiag_collectors.schema`, which hands them on, because that imports Arrow, and
a process that does not record has no need of it.
"""

from __future__ import annotations

DROPPED = "dropped"
"""``kind`` of the mark that says ``weight`` rows were dropped because writing fell behind."""

GPU_WINDOW = "gpu_window"
"""``kind`` of the mark that sums a profiled window: ``t_ns``, ``dur_ns`` (GPU span), ``gpu_ns``,
``gap_ns``, ``launches``, ``kernels``, ``graph_kernels``, and in ``config`` ``graph_launches``,
``unlinked_events``."""

HOOK_OFF = "hook_off"
"""``kind`` of the mark that says a hook failed and switched itself off; details in ``config``."""

RECOMPILE_LIMIT = "recompile_limit"
"""``kind`` of the mark that says a frame is not compiled any more; ``config``: ``frame``,
``compile_id``, ``effect`` (what no compiled version fits runs ``eager`` from here on, or is an
``error``), ``limit``, ``reason`` of the last attempt."""

DYNAMO_RESET = "dynamo_reset"
"""``kind`` of the mark that says Dynamo was reset, so that ``frames`` are compiled again."""

COMPILE_FAILED = "compile_failed"
"""``kind`` of the mark of a compile that raised: ``frame``, ``type``, ``reason``."""

CUDAGRAPH_SKIP = "cudagraph_skip"
"""``kind`` of the mark that says inductor left CUDA graphs out: ``frame``, ``reason``."""

CAPTURE_FAILED = "capture_failed"
"""``kind`` of the mark of a capture that raised: ``artifact``, ``error``."""

GRAPH_REPLAYS = "graph_replays"
"""``kind`` of the mark of ``weight`` replays that no recorded step accounts for. ``config``:
``artifacts``, how often each was replayed meanwhile, in steps or not; ``other_artifacts``, the
same for those not named; ``launch_ns``, host time inside all of them, where it is measured."""
