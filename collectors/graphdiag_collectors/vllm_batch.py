"""What a batch was doing, from the scheduler's own account of it.

``SchedulerOutput`` has kept the fields used here since vLLM 0.10; what one lacks is not told.
"""

from __future__ import annotations

from typing import Any

_NOTHING: list[int] = []


def phase_of(output: Any) -> str | None:
    """Return the phase of a batch whose requests differ in length.

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
    if new or filling:
        return "mixed"
    # Drafts differ in length, so that the batch is not uniform.
    return "verify" if getattr(output, "scheduled_spec_decode_tokens", None) else "decode"


def mixed_of(output: Any, tokens: int) -> tuple[str | None, int]:
    """Return :func:`phase_of` and :func:`context_of` of a batch, for less than both."""
    cached = output.scheduled_cached_reqs
    new = output.scheduled_new_reqs
    context = sum(cached.num_computed_tokens, tokens)
    if new:
        for request in new:
            context += request.num_computed_tokens
    try:
        # A request is new, or the latest or some other is in prefill, and the oldest decodes.
        produced = cached.num_output_tokens
        filling = new or not produced[-1] or 0 in produced
        if filling and produced[0] and not cached.resumed_req_ids:
            return "mixed", context
    except (AttributeError, IndexError):
        pass
    return phase_of(output), context


def context_of(output: Any, tokens: int) -> int:
    """Return how many tokens of context the step attended to, its own included."""
    computed = sum(output.scheduled_cached_reqs.num_computed_tokens)
    for request in output.scheduled_new_reqs:
        computed += request.num_computed_tokens
    return int(computed) + tokens


def preempted_in(output: Any) -> int:
    """Return how many requests had to leave for the step."""
    return len(getattr(output, "preempted_req_ids", None) or ())


def produced_in(output: Any) -> int | None:
    """Return how many tokens a runner's output holds; None where it holds none yet."""
    sampled = getattr(output, "sampled_token_ids", None)
    return sum(map(len, sampled)) if isinstance(sampled, list) else None


def produced_singly(output: Any) -> int | None:
    """Return :func:`produced_in` where no request produces more than one token, for less."""
    try:
        sampled = output.sampled_token_ids
    except AttributeError:
        return None
    return len(sampled) - sampled.count(_NOTHING) if type(sampled) is list else None
