"""What a batch was doing, from the scheduler's own account of it.

``SchedulerOutput`` has kept the fields used here since vLLM 0.10; what one lacks is not told.
"""

from __future__ import annotations

from typing import Any


def phase_of(output: Any) -> str | None:
    """Return decode, prefill or mixed for a batch whose requests differ in length.

    A request is in prefill when it is new, was preempted and comes back, or has produced nothing.
    None where the scheduler does not say how much a request has produced.
    """
    new = len(output.scheduled_new_reqs)
    cached = output.scheduled_cached_reqs
    old = len(cached.num_computed_tokens)
    if not old:
        return "prefill"
    produced = getattr(cached, "num_output_tokens", None)
    if produced is None:
        return "mixed" if new else None
    filling = produced.count(0)
    resumed = getattr(cached, "resumed_req_ids", None)
    if resumed:
        pairs = zip(cached.req_ids, produced, strict=False)
        filling += sum(1 for request, count in pairs if count and request in resumed)
    if filling == old:
        return "prefill"
    return "mixed" if new or filling else "decode"


def context_of(output: Any, tokens: int) -> int:
    """Return how many tokens of context the step attended to, its own included."""
    computed = sum(output.scheduled_cached_reqs.num_computed_tokens)
    for request in output.scheduled_new_reqs:
        computed += request.num_computed_tokens
    return int(computed) + tokens


def produced_in(output: Any) -> int | None:
    """Return how many tokens a runner's output holds; None where it holds none yet."""
    sampled = getattr(output, "sampled_token_ids", None)
    return sum(map(len, sampled)) if isinstance(sampled, list) else None
