"""Goodput: tokens a second that met the objectives, start-up included and left out."""

from __future__ import annotations

from dataclasses import dataclass

from graphdiag.bootstrap import LEAST_STRETCHES, half_width
from graphdiag.comparison.answer import (
    FirstToken,
    Goodput,
    Interval,
    Objectives,
    RequestGoodput,
    StartUp,
)
from graphdiag.comparison.equaltraffic import SIDES
from graphdiag.comparison.served import Served, rate
from graphdiag.wording import count, duration, figure, measure, percent

RULE = "{} has succeeded only if it improves the service after its full cost is included"
_NOISE = "without an interval nothing tells the gain from noise"
Both = tuple[Served | None, Served | None]


@dataclass(frozen=True)
class Gain:
    """How much more of the service met an objective: tokens/s, with start-up; None where unknown.

    ``base`` is the base's goodput.
    """

    per_s: float | None
    ci95: Interval
    base: float | None

    @property
    def is_real(self) -> bool:
        """Whether it is a gain beyond noise."""
        return self.ci95 is not None and self.ci95[0] > 0

    @property
    def is_loss(self) -> bool:
        """Whether it is a loss beyond noise."""
        return self.ci95 is not None and self.ci95[1] < 0


def judge(
    served: Both,
    requests: Both,
    starts: tuple[StartUp, StartUp],
    slo_itl_ms: float | None,
    slo_ttft_ms: float | None,
    *,
    same_traffic: bool = True,
    graphs: bool = True,
    too_short: str | None = None,
) -> Objectives:
    """Say whether the candidate improves the service after its full cost, start-up included.

    ``served`` and ``requests`` are what the base and the candidate served within the objectives
    between tokens and for the first one; None without that objective. On other traffic the answer
    says that it is. ``graphs`` tells whether the candidate replays graphs or runs compiled code,
    ``too_short`` why no interval can be drawn, where that is known.
    """
    between, first = gain_of(served), gain_of(requests)
    known = [one for one in (between, first) if one.per_s is not None]
    succeeded = _succeeded(known)
    rule = RULE.format("A graph mode" if graphs else "The change")
    back = [_repaid(one, starts) for one in known] if succeeded else []
    repaid = max((one for one in back if one is not None), default=None)
    base, candidate = (_goodput(one) for one in served)
    first_token = None
    if requests[0] and requests[1] and requests[0].requests and requests[1].requests:
        first_token = FirstToken(
            base=_request_goodput(requests[0]),
            candidate=_request_goodput(requests[1]),
            gain_tokens_per_s=first.per_s,
            gain_ci95=first.ci95,
        )
    if succeeded is None:
        if known:
            why = f"{_NOISE}: {too_short or _too_short(served, requests)}"
        else:
            why = _why_not(served, requests, slo_itl_ms, slo_ttft_ms)
        sentence = f"{rule}: not identifiable, because {why}."
    else:
        answer = "yes" if succeeded else _no(known)
        answer += "" if same_traffic else ", but the two served different traffic"
        sentence = f"{rule}: {answer}."
    if between.per_s is not None:
        sentence += _between(base, candidate)
    if repaid:
        sentence += (
            " Its first step came later than the base's, which the gain makes up for in "
            f"{duration(repaid)} of service."
        )
    if first_token is not None and slo_ttft_ms is not None:
        sentence += _first(first_token, slo_ttft_ms)
    return Objectives(
        slo_itl_ms=slo_itl_ms,
        slo_ttft_ms=slo_ttft_ms,
        base=base,
        candidate=candidate,
        gain_tokens_per_s=between.per_s,
        gain_ci95=between.ci95,
        repaid_after_s=repaid,
        succeeded=succeeded,
        sentence=sentence,
        first_token=first_token,
    )


def gain_of(served: Both) -> Gain:
    """Return how much more the candidate served within an objective."""
    base, candidate = served
    if base is None or candidate is None or base.rate is None or candidate.rate is None:
        return Gain(None, None, None)
    gain = candidate.rate - base.rate
    first, second = base.resampled(0), candidate.resampled(1)
    if first is None or second is None:
        return Gain(gain, None, base.rate)
    half = half_width(second - first, min(base.slices, candidate.slices))
    return Gain(gain, (gain - half, gain + half), base.rate)


def _succeeded(known: list[Gain]) -> bool | None:
    """Answer from the gains under each objective; None where noise may have made the answer."""
    if any(one.is_loss for one in known):
        return False
    if not known or any(one.ci95 is None for one in known):
        return None
    return all(one.is_real for one in known)


def _goodput(served: Served | None) -> Goodput:
    if served is None:
        return Goodput(tokens_per_s=None, share=None, steady_tokens_per_s=None, steady_share=None)
    whole = rate(served.met, served.tokens, served.seconds)
    later = rate(
        *(
            float(part.sum())
            for part in (served.steady_met, served.steady_tokens, served.steady_seconds)
        )
    )
    return Goodput(
        tokens_per_s=served.rate,
        share=whole[1],
        steady_tokens_per_s=later[0],
        steady_share=later[1],
    )


def _request_goodput(served: Served) -> RequestGoodput:
    tokens = _goodput(served)
    steady = served.steady_requests
    return RequestGoodput(
        requests=round(served.requests),
        share=served.requests_met / served.requests if served.requests else None,
        tokens_per_s=tokens.tokens_per_s,
        steady_share=served.steady_requests_met / steady if steady else None,
        steady_tokens_per_s=tokens.steady_tokens_per_s,
    )


def _repaid(gain: Gain, starts: tuple[StartUp, StartUp]) -> float | None:
    """Return after how many seconds of service a longer start is made up for."""
    first, second = (start.first_step_s for start in starts)
    if first is None or second is None or gain.base is None or not gain.per_s:
        return None
    return max(second - first, 0.0) * gain.base / gain.per_s


def _no(known: list[Gain]) -> str:
    if any(one.is_loss for one in known):
        return "no"
    if any(one.per_s is not None and one.per_s < 0 for one in known):
        return "no, and the loss is within noise"
    gained = any(one.per_s for one in known)
    return "no, the gain is within noise" if gained else "no, there is no gain"


def _too_short(served: Both, requests: Both) -> str:
    """Return why there is no interval where steps would do for one."""
    short = [
        name
        for name, *both in zip(SIDES, served, requests, strict=True)
        if any(one is not None and one.slices < LEAST_STRETCHES for one in both)
    ]
    return (
        f"what the {' and the '.join(short)} served after start-up is too short to be cut into "
        "stretches of time; record longer"
    )


def _why_not(
    served: Both, requests: Both, slo_itl_ms: float | None, slo_ttft_ms: float | None
) -> str:
    if slo_itl_ms is not None:
        lacking = [
            name for name, one in zip(SIDES, served, strict=True) if one is None or one.rate is None
        ]
        return (
            f"the steps of the {' and of the '.join(lacking)} do not tell their times and the "
            "tokens they produced"
        )
    if slo_ttft_ms is not None:
        lacking = [
            f"no {'token of the requests' if one and one.requests else 'request'} of the {name}"
            for name, one in zip(SIDES, requests, strict=True)
            if one is None or one.rate is None
        ]
        return (
            f"{' and '.join(lacking)} is on record, and no objective between tokens was given "
            "(--slo-itl-ms)"
        )
    return "no objective was given (--slo-itl-ms, --slo-ttft-ms)"


def _between(base: Goodput, candidate: Goodput) -> str:
    told = (
        f" Within the objective the candidate produces "
        f"{measure(candidate.tokens_per_s, 'tokens/s')} against "
        f"{measure(base.tokens_per_s, 'tokens/s')} with start-up included"
    )
    if base.steady_tokens_per_s is not None and candidate.steady_tokens_per_s is not None:
        told += (
            f", {measure(candidate.steady_tokens_per_s, 'tokens/s')} against "
            f"{measure(base.steady_tokens_per_s, 'tokens/s')} without"
        )
    return f"{told}."


def _first(told: FirstToken, slo_ttft_ms: float) -> str:
    base, candidate = told.base, told.candidate
    shares = (
        f" The first token came within {figure(slo_ttft_ms)} ms for {percent(candidate.share)} of "
        f"{count(candidate.requests, 'request')} of the candidate and {percent(base.share)} of "
        f"{count(base.requests, 'request')} of the base"
    )
    if told.gain_tokens_per_s is None:
        return f"{shares}."
    return (
        f"{shares}: {measure(candidate.tokens_per_s, 'tokens/s')} against "
        f"{measure(base.tokens_per_s, 'tokens/s')}."
    )
