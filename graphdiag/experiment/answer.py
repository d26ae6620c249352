"""What ``graphdiag experiment`` found, as plain values: its JSON contract, format 1.

As in :mod:`graphdiag.findings`: more keys may be added, none renamed; rates are fractions, times
carry their unit in the name, null means "not identifiable". Changes are a mode's less the base's:
positive is slower.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from graphdiag.buckets.answer import Plan, SingleChange
from graphdiag.comparison.answer import Interval, Terms
from graphdiag.findings import AuditFinding, Verdict


class WorkloadTold(msgspec.Struct, kw_only=True, frozen=True):
    """The requests that every run served; ``fixed_batches``: their batches hang on no clock."""

    name: str
    sentence: str
    requests: int
    fixed_batches: bool


class Run(msgspec.Struct, kw_only=True, frozen=True):
    """One run of one mode in a process of its own; times are in s since the process started.

    ``cache`` is ``empty`` where nothing was compiled before it, ``kept`` where the mode's first
    run had filled it. ``ended`` is how the run did: ``whole``, ``interrupted``, or ``failed``.
    ``trace`` is null where nothing was recorded.
    """

    mode: str
    round: int
    cache: Literal["empty", "kept"]
    ended: Literal["whole", "interrupted", "failed"]
    trace: str | None
    log: str
    ready_s: float | None
    first_step_s: float | None
    ended_s: float | None
    steps: int | None
    tokens_out: int | None
    sentence: str | None


class Rate(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens a second: of all, and of those whose step met the objective, with their share."""

    tokens_per_s: float | None
    goodput_tokens_per_s: float | None
    goodput_share: float | None


class Repayment(msgspec.Struct, kw_only=True, frozen=True):
    """How long a mode must serve until its steps have made up for its longer start.

    ``later_s`` is how much later than the base its first step ended. ``steps`` and ``hours`` are
    null where it never does, or cannot be told to; the upper end of an interval is null where it
    may never.
    """

    later_s: float | None
    steps: float | None
    steps_ci95: tuple[float, float | None] | None
    hours: float | None
    hours_ci95: tuple[float, float | None] | None
    sentence: str


class Against(msgspec.Struct, kw_only=True, frozen=True):
    """A mode against the base, of the same round each.

    ``change_ms_per_step`` is the mean over the rounds, of steady steps on equal traffic, and its
    interval holds those of every round; so do ``gain_*``, of tokens/s within the objective,
    start-up among the steps included. ``terms`` (means over the rounds) split the change of all
    steps, ``all_change_ms_per_step``.
    """

    base: str
    rounds: int
    change_ms_per_step: float | None
    change_ci95: Interval
    all_change_ms_per_step: float | None
    terms: Terms | None
    gain_tokens_per_s: float | None
    gain_ci95: Interval
    cold: Repayment
    warm: Repayment | None
    succeeded: bool | None
    sentence: str


class Mode(msgspec.Struct, kw_only=True, frozen=True):
    """A row of the table: one mode over all its runs.

    ``cold_start_s`` is until the engine could take its first request, with an empty compile cache;
    ``first_step_s`` until its first real step had ended, in the same run; ``warm_*`` with the cache
    of the first, means. Steps and rates are of the steady period, over the ``rounds`` runs that
    ended whole (or what there is of the one that did not). ``gpu_gap_ms`` is null without a GPU, or
    where no step was profiled. ``same_tokens`` says whether it sampled the base's very tokens.
    """

    mode: str
    what: str
    rounds: int
    cold_start_s: float | None
    first_step_s: float | None
    warm_start_s: float | None
    warm_first_step_s: float | None
    prepare_ms: float | None
    gpu_gap_ms: float | None
    exact_hit_rate: float | None
    padding_ratio: float | None
    fallback_rate: float | None
    graph_bytes: int | None
    compile_count: int
    compile_seconds: float
    capture_count: int
    capture_seconds: float
    step_ms: float | None
    decode_step_ms: float | None
    rate: Rate
    same_tokens: bool | None
    diagnosis: Verdict
    audit: list[AuditFinding]
    against: Against | None


class BucketChange(msgspec.Struct, kw_only=True, frozen=True):
    """The best change of one bucket within ``budget``; null ``change``: none is worth it."""

    budget: str
    current: Plan
    change: SingleChange | None
    sentence: str


class Experiment(msgspec.Struct, kw_only=True, frozen=True):
    """All of ``graphdiag experiment``, in the order the JSON prints it.

    ``slo`` says where the objective comes from. ``verdict`` is the answer after the full cost.
    """

    format: int
    engine: str
    versions: dict[str, str]
    device: str
    gpu: bool
    folder: str
    workload: WorkloadTold
    buckets: list[int]
    faults: list[str]
    seed: int
    interrupted: bool
    verdict: str
    slo_itl_ms: float | None
    slo: str
    base: str | None
    modes: list[Mode]
    bucket_change: BucketChange | None
    runs: list[Run]
    not_identifiable: list[str]
    notes: list[str]
