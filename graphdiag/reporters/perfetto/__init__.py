"""A trace as Chrome trace-event JSON, for ui.perfetto.dev, beside a profiler's trace or alone."""

from graphdiag.reporters.perfetto.writer import Written, write

__all__ = ["Written", "write"]
