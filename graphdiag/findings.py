"""What the analyzer found, as plain values: the JSON contract, format 1.

Every reporter renders a :class:`Report` and computes nothing. Keys are stable: more may
be added, none renamed. Rates are fractions; times carry their unit in the name; null
means "not identifiable from this source", never zero.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

CaseName = Literal["compile", "shapes", "fallback", "padding"]
Severity = Literal["error", "warn", "info"]

CASES: tuple[CaseName, ...] = ("compile", "shapes", "fallback", "padding")


class Metrics(msgspec.Struct, kw_only=True, frozen=True):
    """Counts and rates over one set of real steps.

    ``exact_hit_rate`` + ``padded_share`` + ``fallback_rate`` = 1 over ``eligible_steps``, the
    steps graphs should have served; all three are null where there are none. Where the bucket of
    some replay is unknown, only the fallback rate is identifiable of the three. ``padding_ratio``
    (padded rows / requested rows) and ``waste`` (padded rows / bucket rows) are over replayed
    steps whose bucket is known.
    """

    steps: int
    eligible_steps: int
    exact_hit_rate: float | None
    padded_share: float | None
    fallback_rate: float | None
    padding_ratio: float | None
    waste: float | None
    compile_count: int
    compile_seconds: float
    capture_count: int
    capture_seconds: float
    graph_bytes: int | None
    unique_artifacts: int
    dropped_rows: int
    step_ms_mean: float | None = None
    step_ms_p50: float | None = None
    step_ms_p99: float | None = None
    timed_steps: int = 0


class Window(msgspec.Struct, kw_only=True, frozen=True):
    """The time the steps cover; ``start`` and ``end`` are ISO 8601, UTC."""

    start: str
    end: str
    seconds: float


class Case(msgspec.Struct, kw_only=True, frozen=True):
    """One of the four cases, with its price and what to do.

    ``ms_per_step`` has a 95 % interval where one can be drawn; ``compile`` is over all steps of
    the window, the others over the steady steps that graphs should have served. ``share`` is the
    case's own severity where there are no times: of the window's time (compile), of those steps
    (shapes, fallback), or of executed rows (padding).
    """

    case: CaseName
    ms_per_step: float | None
    ci95: tuple[float, float] | None
    share: float | None
    evidence: list[str]
    advice: list[str]


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """The worst case, or null when the engine is healthy, in one sentence."""

    case: CaseName | None
    sentence: str


class AuditFinding(msgspec.Struct, kw_only=True, frozen=True):
    """Something the configuration or the dispatch shows without any timing."""

    kind: str
    severity: Severity
    sentence: str
    data: dict[str, Any]


class SizeRow(msgspec.Struct, kw_only=True, frozen=True):
    """Steps of one requested size that met one fate; ``step_ms`` is their mean."""

    requested: int
    steps: int
    bucket: int | None
    outcome: str | None
    step_ms: float | None
    phase: str | None = None


class SizeCost(msgspec.Struct, kw_only=True, frozen=True):
    """A requested size under the current set: replay against eager, in ms a step.

    ``padded_ms`` is what its padded rows cost, ``launch_saving_ms`` what replay saves at its size,
    ``net_ms`` the second less the first.
    """

    requested: int
    steps: float
    bucket: int | None
    padded_rows: int | None
    replay_ms: float | None
    eager_ms: float | None
    padded_ms: float | None
    launch_saving_ms: float | None
    net_ms: float | None


class ArtifactRow(msgspec.Struct, kw_only=True, frozen=True):
    """One artifact: what it is, what it cost to make once, and how many steps it served.

    ``replays`` are those that were counted, in steps or not, in the seconds in which some replay
    belonged to no step; null where there was no such second.
    """

    artifact: str
    kind: str | None
    served: int
    size: int | None = None
    captured: bool = False
    capture_ms: float | None = None
    compile_ms: float | None = None
    pool_bytes: int | None = None
    replays: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether a graph was captured and never replayed; no compiled region is ever replayed."""
        compiled_only = self.compile_ms is not None and self.capture_ms is None
        return self.captured and not compiled_only and not (self.served or self.replays)


class Recommendation(msgspec.Struct, kw_only=True, frozen=True):
    """Sizes to add or drop, the whole set, and the flag for each engine.

    ``padding_ratio`` and ``fallback_rate`` are what the set gives on this trace's traffic; null
    where the change would change the traffic itself, as out of a fallback trap.
    """

    add: list[int]
    drop: list[int]
    buckets: list[int]
    why: str
    flags: dict[str, str]
    padding_ratio: float | None = None
    fallback_rate: float | None = None


class StepCosts(msgspec.Struct, kw_only=True, frozen=True):
    """What a step of one phase costs host and GPU: means over the ``steps`` that were measured.

    ``host_ms`` leaves out ``blocked_ms``, the time in blocking copies and syncs;
    ``graph_launch_ms`` is part of it. ``gpu_gap_ms`` is idle time within the step's GPU span.
    ``gpu_span_ms`` is over the steps that were sampled by event pairs, idle time included.
    """

    steps: int
    host_ms: float | None
    blocked_ms: float | None
    graph_launch_ms: float | None
    gpu_busy_ms: float | None
    gpu_gap_ms: float | None
    gpu_span_ms: float | None = None
    launches: float | None
    graph_launches: float | None
    kernels: float | None


class Charge(msgspec.Struct, kw_only=True, frozen=True):
    """An amount in ms a step, with its interval where one can be drawn; null: not identifiable."""

    ms_per_step: float | None
    ci95: tuple[float, float] | None


class StepLedger(msgspec.Struct, kw_only=True, frozen=True):
    """Where the mean time of the ``steps`` that carry one goes; the amounts add up to ``mean_ms``.

    ``achievable`` is exact replay of every batch (eager execution, in a phase without graphs). The
    four cases are exclusive. ``compile`` and ``shapes`` hold work between steps too; ``stalls`` is
    what ``stalled_steps``, far longer than others of their size, took beyond those; ``residual`` is
    what the replay curve does not explain. Where ``padding`` is null, it is part of
    ``achievable``. The intervals hold all amounts at once, 95 times in 100.
    """

    steps: int
    mean_ms: float
    achievable: Charge
    compile: Charge
    shapes: Charge
    fallback: Charge
    padding: Charge
    residual: Charge
    stalls: Charge = Charge(ms_per_step=0.0, ci95=None)
    stalled_steps: int = 0


class Gpu(msgspec.Struct, kw_only=True, frozen=True):
    """GPU figures of the profiled windows, summed."""

    busy_ms: float
    idle_ms: float
    span_ms: float
    graph_launches: int
    launches: int
    kernels_in_graphs: int
    kernels_outside_graphs: int
    unlinked_events: int


class Report(msgspec.Struct, kw_only=True, frozen=True):
    """All of ``graphdiag report``, in the order the JSON prints it.

    ``damage`` are those of the ``notes`` that the verdict hangs on: what was not read whole, or was
    lost. ``size_costs`` hold replay against eager at each requested size under the captured sizes,
    and ``winner`` says which of them is faster from which size on; null where no eager step tells.
    """

    format: int
    source: str
    engine: dict[str, Any]
    steps: int
    sampled: bool
    window: Window | None
    verdict: Verdict
    metrics: Metrics
    phases: dict[str, Metrics]
    runners: dict[str, Metrics]
    periods: dict[str, Metrics]
    cases: list[Case]
    audit: list[AuditFinding]
    sizes: list[SizeRow]
    artifacts: list[ArtifactRow]
    recommendation: Recommendation | None
    ledger: StepLedger | None
    gpu: Gpu | None
    step_costs: dict[str, StepCosts]
    not_identifiable: list[str]
    notes: list[str]
    damage: list[str] = []
    size_costs: list[SizeCost] = []
    winner: str | None = None
