"""What a comparison found, in sentences a person can forward."""

from __future__ import annotations

from math import floor, log10

from graphdiag.comparison.change import Change, Measured
from graphdiag.findings import CASES, CaseName, Metrics, Verdict
from graphdiag.verdict import FEWEST_STEPS
from graphdiag.wording import count, figure, percent

_NS_PER_MS = 1e6
_NAMED = 0.02
"""Least share of the largest term at which a verdict names a term."""
_MATERIAL = 0.05
"""Least share of the change at which a verdict names a term."""
Parts = list[tuple[str, Change]]
"""Terms by name, the largest first."""

WORDS = {
    "traffic_mix": ("other traffic", "other traffic"),
    "compile": ("start-up in the measurement", "less start-up in the measurement"),
    "shapes": ("shapes recompiling or capturing", "fewer shapes recompiling or capturing"),
    "fallback": ("fallback to eager", "less fallback to eager"),
    "padding": ("padding", "less padding"),
    "launch_saving": ("launches that replay saved before", "launches saved by replay"),
    "memory": ("tokens computed again after preemptions", "fewer tokens computed again"),
    "stalls": ("steps that stalled", "fewer steps that stalled"),
    "residual": ("the same work running slower", "the same work running faster"),
}
"""Each term in words, where it adds time and where it takes some away."""

ADVICE: dict[CaseName, str] = {
    "compile": "warm up before the measurement, or compare the steady period",
    "shapes": "capture the sizes that traffic asks for, and mark dynamic dimensions",
    "fallback": "raise the largest captured size, or see the reasons in the candidate's report",
    "padding": "add buckets where the padding is: graphdiag buckets on the candidate",
}


def verdict(split: Measured | None, change: Measured | None) -> Verdict:
    """Return what changed and why; ``split`` is None where the change has no terms."""
    if change is None:
        return Verdict(case=None, sentence="Step times are not on record in both: see the reports.")
    few = [
        (name, int(one.total_steps))
        for name, one in (("base", change.base), ("candidate", change.candidate))
        if one.total_steps < FEWEST_STEPS
    ]
    if few:
        name, steps = few[0]
        return Verdict(
            case=None,
            sentence=(
                f"No verdict: {count(steps, 'timed step')} of the {name} is too little to judge "
                f"by; record at least {FEWEST_STEPS}."
            ),
        )
    if change.delta.ci95 is None:
        return Verdict(
            case=None,
            sentence=(
                f"No verdict: the mean step changed by {_signed(change.delta.value)} ms, and "
                "without an interval nothing tells whether that is more than noise."
            ),
        )
    if not change.delta.is_real:
        return _as_long(split, change)
    slower = change.delta.value > 0
    told = f"The candidate is {'slower' if slower else 'faster'} by {_amount(change.delta)} a step"
    if split is None:
        return Verdict(case=None, sentence=f"{told}; what it is made of is not identifiable.")
    causes, against = _parts(split, change.delta)
    if not causes:
        return Verdict(case=None, sentence=f"{told}. {_made_of_noise(split, change, against)}")
    named = [*causes, *against]
    sentence = f"{told}: {_listed(named)}.{_on_same_traffic(split, named)}"
    return _with_case(sentence, causes) if slower else Verdict(case=None, sentence=sentence)


def untimed(base: Metrics, candidate: Metrics) -> Verdict:
    """Return what can be said where one of the two has no step times: how their rates differ."""
    for name, one in (("base", base), ("candidate", candidate)):
        if not one.steps:
            return Verdict(case=None, sentence=f"No verdict: no step of the {name} is on record.")
    lacking = [
        name for name, one in (("base", base), ("candidate", candidate)) if not one.timed_steps
    ]
    who = f"the {lacking[0]} carries" if len(lacking) == 1 else "the two carry"
    return Verdict(
        case=None,
        sentence=(
            f"No verdict on time, because {who} no step times: fallback rate "
            f"{percent(base.fallback_rate)} in the base and {percent(candidate.fallback_rate)} in "
            f"the candidate, padding ratio {percent(base.padding_ratio)} and "
            f"{percent(candidate.padding_ratio)}."
        ),
    )


def waterfall(change: Measured) -> list[str]:
    """Return the way from the base's mean step time to the candidate's, a sentence a term.

    All figures have the same decimals, so that they add up; a term too small for them is left out.
    """
    level = change.base.mean
    digits = _decimals(max(level, change.candidate.mean))

    def ms(ns: float) -> str:
        return f"{ns / _NS_PER_MS:.{digits}f} ms"

    told = [f"base: {ms(level)} a step"]
    for name, term in change.terms.items():
        level += term.value
        if not float(f"{term.value / _NS_PER_MS:.{digits}f}"):
            continue
        words = WORDS[name][0 if term.value > 0 else 1]
        sign = "+" if term.value > 0 else "-"
        noise = "" if term.is_real else ", within noise"
        told.append(f"{sign}{ms(abs(term.value))} {words}{noise}: {ms(level)}")
    told.append(f"candidate: {ms(change.candidate.mean)} a step")
    return told


def _as_long(split: Measured | None, change: Measured) -> Verdict:
    """Return the verdict where the change is within noise, in all; terms may have cancelled."""
    causes, against = ([], []) if split is None else _parts(split, split.matched)
    served = [part for part in causes if part[0] != "traffic_mix"]
    if split is None or not served or not split.matched.is_real:
        sentence = f"No difference beyond noise: {_within(change.delta)} a step."
        return Verdict(case=None, sentence=sentence)
    slower = split.matched.value > 0
    sentence = (
        f"A step takes as long as before ({_within(change.delta)}), but on the same traffic the "
        f"candidate is {'slower' if slower else 'faster'} by {_amount(split.matched)} a step: "
        f"{_listed([*causes, *against])}."
    )
    return _with_case(sentence, served) if slower else Verdict(case=None, sentence=sentence)


def _made_of_noise(split: Measured, change: Measured, against: Parts) -> str:
    """Return sentences on a change of which no term that makes it up is beyond noise."""
    way = 1 if change.delta.value > 0 else -1
    largest = max(split.terms.items(), key=lambda part: part[1].value * way)
    told = f"What it is made of is within noise, the largest part being {_listed([largest])}"
    if against:
        told += f"; beyond noise, the other way, is {_listed(against)}"
    return f"{told}.{_on_same_traffic(split, [largest, *against])}"


def _on_same_traffic(split: Measured, parts: Parts) -> str:
    """Return sentences on equal traffic and on tokens where traffic changed the time too."""
    if all(name != "traffic_mix" for name, _ in parts):
        return ""
    if split.matched.is_real:
        word = "slower" if split.matched.value > 0 else "faster"
        told = f" On the same traffic it is {word} by {_amount(split.matched)}."
    else:
        told = " On the same traffic there is no difference beyond noise."
    token = split.per_token
    if token is None or not token.is_real:
        return told
    return f"{told} A token takes {_amount(token)} {'more' if token.value > 0 else 'less'}."


def _with_case(sentence: str, causes: Parts) -> Verdict:
    """Return the verdict that blames the term that added most, where it is one of the four."""
    worst = max(causes, key=lambda part: part[1].value)[0]
    case = next((name for name in CASES if name == worst), None)
    if case is None:
        return Verdict(case=None, sentence=sentence)
    return Verdict(case=case, sentence=f"{sentence} Case {CASES.index(case) + 1}: {ADVICE[case]}.")


def _parts(split: Measured, change: Change) -> tuple[Parts, Parts]:
    """Return the terms that pull the way of ``change``, and those that pull the other.

    Only what is beyond noise, and neither immaterial to the change nor dwarfed by another term.
    """
    real = [(name, term) for name, term in split.terms.items() if term.is_real]
    largest = max((abs(term.value) for _, term in real), default=0.0)
    least = max(_MATERIAL * abs(change.value), _NAMED * largest)
    named = [(name, term) for name, term in real if abs(term.value) >= least]
    named.sort(key=lambda part: -abs(part[1].value))
    causes = [part for part in named if part[1].value * change.value > 0]
    return causes, [part for part in named if part not in causes]


def _listed(parts: Parts) -> str:
    told = []
    for name, term in parts:
        words = WORDS[name][0 if term.value > 0 else 1]
        told.append(f"{words} {_signed(term.value)} ms")
    return ", ".join(told)


def _amount(change: Change) -> str:
    """Return the size of a change with its interval, both in the direction of the change."""
    size = _ms(abs(change.value))
    if change.ci95 is None:
        return size
    low, high = sorted(end / _NS_PER_MS * (1 if change.value >= 0 else -1) for end in change.ci95)
    return f"{size} (95 %: {_number(low)} to {_number(high)})"


def _within(change: Change) -> str:
    """Return a change that may be noise with its interval, all with their signs."""
    value = f"{_signed(change.value)} ms"
    if change.ci95 is None:
        return value
    low, high = map(_signed, change.ci95)
    return f"{value} (95 %: {low} to {high})"


def _signed(ns: float) -> str:
    text = _number(ns / _NS_PER_MS)
    return f"+{text}" if ns > 0 and text != "0" else text


def _decimals(ns: float) -> int:
    """Return how many decimals of ms give four digits of a time of ``ns``."""
    ms = ns / _NS_PER_MS
    return min(max(3 - floor(log10(ms)), 0), 6) if ms > 0 else 3


def _ms(ns: float) -> str:
    return f"{_number(ns / _NS_PER_MS)} ms"


def _number(value: float) -> str:
    return figure(round(value, 6) + 0.0)
