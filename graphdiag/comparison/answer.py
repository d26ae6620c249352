"""What ``graphdiag compare`` found, as plain values: its JSON contract, format 1.

As in :mod:`graphdiag.findings`: more keys may be added, none renamed; times carry their unit in the
name, null means "not identifiable". Changes are candidate less base: positive is slower.
"""

from __future__ import annotations

from typing import Any

import msgspec

from graphdiag.findings import AuditFinding, Report, SizeCost, Verdict

Interval = tuple[float, float] | None


class Terms(msgspec.Struct, kw_only=True, frozen=True):
    """The change in ms a step, by cause; the terms add up to it.

    ``launch_saving`` is negative where replay saves launches; ``memory`` are tokens computed again
    after preemptions, as far as they are on record; ``stalls`` are steps far longer than
    others of their size; ``residual`` is the same size, served the same way, at another speed.
    """

    traffic_mix: float
    compile: float
    shapes: float
    fallback: float
    padding: float
    launch_saving: float
    residual: float
    memory: float = 0.0
    stalls: float = 0.0


class TermIntervals(msgspec.Struct, kw_only=True, frozen=True):
    """Intervals that hold all terms at once, 95 times in 100."""

    traffic_mix: Interval
    compile: Interval
    shapes: Interval
    fallback: Interval
    padding: Interval
    launch_saving: Interval
    residual: Interval
    memory: Interval = None
    stalls: Interval = None


class PerToken(msgspec.Struct, kw_only=True, frozen=True):
    """The change in ms a token produced, by the same causes; ``terms`` add up to ``delta_ms``."""

    delta_ms: float
    ci95: Interval
    terms: Terms


class Difference(msgspec.Struct, kw_only=True, frozen=True):
    """A key of the run's configuration that differs between the two."""

    key: str
    base: Any
    candidate: Any


class StartUp(msgspec.Struct, kw_only=True, frozen=True):
    """What a run's start cost, in s: until its first real step, and of what it was made.

    ``compile_s``, ``cache_load_s`` and ``capture_s`` are the slowest rank's before the first step;
    ``rest_s`` is what is left. ``artifacts`` were made in the whole run and ``served`` of them
    served a real step; ``served_steps`` were served by those. Both are null where what was made has
    no names.
    """

    first_step_s: float | None
    compile_s: float | None
    cache_load_s: float | None
    capture_s: float | None
    rest_s: float | None
    artifacts: int
    served: int | None
    served_steps: int | None


class Goodput(msgspec.Struct, kw_only=True, frozen=True):
    """Tokens a second produced in steps that met the objective, and the share of tokens that did.

    ``steady_*`` leave start-up out.
    """

    tokens_per_s: float | None
    share: float | None
    steady_tokens_per_s: float | None
    steady_share: float | None


class RequestGoodput(msgspec.Struct, kw_only=True, frozen=True):
    """Requests on record, the share of them whose first token met the objective, and their tokens.

    ``steady_*`` are over the requests that arrived after start-up.
    """

    requests: int
    share: float | None
    tokens_per_s: float | None
    steady_share: float | None
    steady_tokens_per_s: float | None


class FirstToken(msgspec.Struct, kw_only=True, frozen=True):
    """Goodput of both under an objective for the first token, and the candidate's gain."""

    base: RequestGoodput
    candidate: RequestGoodput
    gain_tokens_per_s: float | None
    gain_ci95: Interval


class Objectives(msgspec.Struct, kw_only=True, frozen=True):
    """Goodput of both under the objectives given; ``succeeded`` answers ``sentence``.

    ``gain_tokens_per_s`` is the candidate's less the base's, start-up among the steps included.
    ``first_token`` is null where no objective for it was given, or no requests are on record.
    ``repaid_after_s`` is how long the candidate must serve until its gain has made up for the time
    that its first step came later than the base's.
    """

    slo_itl_ms: float | None
    slo_ttft_ms: float | None
    base: Goodput
    candidate: Goodput
    gain_tokens_per_s: float | None
    gain_ci95: Interval
    repaid_after_s: float | None
    succeeded: bool | None
    sentence: str
    first_token: FirstToken | None = None


class SizeChange(msgspec.Struct, kw_only=True, frozen=True):
    """One requested size in both: its steps, the bucket most of them replayed, and mean ms a step.

    A bucket is null where most of the steps replayed none. ``cost_ms_per_step`` is ``change_ms``
    times the mean of the size's two shares of the steps: what the change adds to a step of all.
    """

    phase: str
    requested: int | None
    base_steps: int
    candidate_steps: int
    base_bucket: int | None
    candidate_bucket: int | None
    base_ms: float | None
    candidate_ms: float | None
    change_ms: float | None
    cost_ms_per_step: float | None


class Comparison(msgspec.Struct, kw_only=True, frozen=True):
    """All of ``graphdiag compare``, in the order the JSON prints it.

    ``delta_ms_per_step`` is over all timed steps of the windows, start-up included, and null
    without times; ``steady_*`` leaves start-up out; ``matched_*`` is at equal traffic, and
    ``steady_matched_*`` both, over the shares of the steps of base and candidate that
    ``matched_shares`` and ``steady_matched_shares`` tell. ``terms`` is null where the two cannot be
    split.
    ``size_costs`` hold replay against eager at each requested size of the one that replays (the
    candidate, where both do), with the other's eager steps where it has its graphs off; ``winner``
    says which is faster from which size on.
    """

    format: int
    base_source: str
    candidate_source: str
    delta_ms_per_step: float | None
    ci95: Interval
    base_ms_per_step: float | None
    candidate_ms_per_step: float | None
    terms: Terms | None
    terms_ci95: TermIntervals | None
    matched_ms_per_step: float | None
    matched_ci95: Interval
    steady_ms_per_step: float | None
    steady_ci95: Interval
    base_steady_ms_per_step: float | None
    candidate_steady_ms_per_step: float | None
    steady_matched_ms_per_step: float | None
    steady_matched_ci95: Interval
    per_token: PerToken | None
    verdict: Verdict
    waterfall: list[str]
    objectives: Objectives | None
    differences: list[Difference]
    key_audit: list[AuditFinding]
    base_start_up: StartUp
    candidate_start_up: StartUp
    sizes: list[SizeChange]
    not_identifiable: list[str]
    notes: list[str]
    base: Report
    candidate: Report
    size_costs: list[SizeCost] = []
    winner: str | None = None
    matched_shares: tuple[float, float] | None = None
    steady_matched_shares: tuple[float, float] | None = None
