"""What an engine accepts as a bucket set, and what it would make of any other list."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphdiag.runconfig import positive_int
from graphdiag.wording import count

EngineName = Literal["vllm", "sglang", "tensorrt_llm"]
Ints = NDArray[np.int64]

TITLES: dict[EngineName, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt_llm": "TensorRT-LLM",
}
LARGEST_SIZE = 2**31 - 1
"""Largest bucket that a trace can name."""
_LISTED = 8
"""Most sizes a sentence lists one by one."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What one engine accepts as a bucket set, for one phase of one run.

    Attributes
    ----------
    engine, version
        The engine, and its version as the run tells it.
    phase
        Phase the list is for; None where one list serves all phases (vLLM).
    axis
        What the sizes count.
    multiple_of
        Every size must be a multiple of it.
    most
        Largest legal size, None where the run does not tell; 0 where no graph can be captured.
    must_contain
        Sizes that every legal and sensible list holds or, where not in ``required``, exceeds.
    required
        Those of ``must_contain`` without which the engine refuses the list, where not above it.
    within_factor
        A bucket more than this times the requested size is not replayed; None: no limit.
    exact_only
        Whether only a batch of exactly a captured size is replayed (padding is off).
    misaligned
        What happens to a size that is no multiple: left out, rounded up, or rounded up and left
        out where that passes the largest of the list.
    over
        What happens to sizes above ``most``: left out, replaced by ``most``, or the engine stops.
    on_empty, on_not_positive
        What the engine does with an empty list, and with a size below one.
    reasons
        Why, one sentence for a field's name.
    notes
        What is assumed because the run does not tell it.
    """

    engine: EngineName
    version: str | None
    phase: Literal["decode", "prefill"] | None
    axis: Literal["tokens", "requests"]
    multiple_of: int = 1
    most: int | None = None
    must_contain: tuple[int, ...] = ()
    required: tuple[int, ...] = ()
    within_factor: float | None = None
    exact_only: bool = False
    misaligned: Literal["dropped", "rounded", "rounded_within"] = "dropped"
    over: Literal["dropped", "clipped", "refused"] = "dropped"
    on_empty: str = "stops at start"
    on_not_positive: str = "stops at start"
    reasons: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def largest(self) -> int:
        """Largest legal size; 0 where none is."""
        top = LARGEST_SIZE if self.most is None else self.most
        return top - top % self.multiple_of

    def legal_above(self, sizes: Ints) -> Ints:
        """Return the smallest legal size at or above each of ``sizes``; 0 where none is."""
        wanted = np.maximum(np.asarray(sizes, dtype=np.int64), 1)
        fits = wanted <= self.largest
        steps = -(-np.where(fits, wanted, 0) // self.multiple_of)
        return np.asarray(steps * self.multiple_of, dtype=np.int64)

    def complaints(self, buckets: Sequence[int]) -> list[str]:
        """Return a sentence for each way in which the engine would not do as the list says."""
        return [*self.refusals(buckets), *self._remarks(buckets)]

    def refusals(self, buckets: Sequence[int]) -> list[str]:
        """Return those complaints that make the list illegal: it must not be printed as a flag."""
        title = TITLES[self.engine]
        if not buckets:
            return [f"The list is empty: {title} {self.on_empty}."]
        found = []
        wrong = [size for size in buckets if size < 1]
        if wrong:
            found.append(f"{_named(wrong)} below 1: {title} {self.on_not_positive}.")
        over = [size for size in buckets if self.most is not None and size > self.most]
        if over:
            found.append(f"{_named(over)} above {self.most}: {title} {self._over(over, buckets)}.")
        odd = [size for size in buckets if size > 0 and size % self.multiple_of]
        if odd:
            what = f"no multiple{'s' if len(set(odd)) > 1 else ''} of {self.multiple_of}"
            why = self.reasons.get("multiple_of", "")
            found.append(f"{_named(odd)} {what}: {title} {self._misaligned(odd)}. {why}".rstrip())
        missing = [n for n in self.required if n <= max(buckets) and n not in buckets]
        if missing:
            found.append(f"{_listed(missing)} must be in the list, or {title} stops at start.")
        return found

    def normalised(self, buckets: Sequence[int]) -> list[int]:
        """Return the list as the engine would end up having it: ascending, each size once."""
        sizes = sorted({int(size) for size in buckets if size > 0})
        fitting = [size for size in sizes if self.most is None or size <= self.most]
        if self.over == "clipped" and len(fitting) < len(sizes):
            fitting.append(self.largest)
        if self.multiple_of == 1 or self.misaligned == "dropped":
            return sorted({n for n in fitting if n > 0 and n % self.multiple_of == 0})
        limit = self.largest
        if self.misaligned == "rounded_within":
            limit = min(limit, max(fitting, default=0))
        rounded = {n + -n % self.multiple_of for n in fitting}
        kept = sorted(n for n in rounded if n <= limit)
        if not kept and fitting and self.multiple_of <= limit:
            kept = [self.multiple_of]
        return kept

    def _remarks(self, buckets: Sequence[int]) -> list[str]:
        if not buckets:
            return []
        title = TITLES[self.engine]
        found = []
        twice = [size for size, times in Counter(buckets).items() if times > 1]
        if twice:
            found.append(f"{_listed(twice)} more than once: {title} captures one of each.")
        if list(buckets) != sorted(buckets):
            found.append(f"The sizes are not ascending: {title} sorts them.")
        short = [n for n in self.must_contain if n not in self.required and n > max(buckets)]
        if short:
            found.append(
                f"The largest size is {max(buckets)}, below {max(short)}: larger batches run "
                f"eager. {self.reasons.get('must_contain', '')}".rstrip()
            )
        found += self._gaps(sorted({size for size in buckets if size > 0}))
        return found

    def _gaps(self, sizes: list[int]) -> list[str]:
        if self.within_factor is None:
            return []
        gaps = []
        for low, high in pairwise(sizes):
            last = int(-(-high // self.within_factor)) - 1
            if last > low:
                gaps.append(f"{low + 1} to {last}" if last > low + 1 else str(last))
        if not gaps:
            return []
        more = f" and {len(gaps) - _LISTED} more ranges" if len(gaps) > _LISTED else ""
        return [
            f"{', '.join(gaps[:_LISTED])}{more} {self.axis} run eager: the next size up is more "
            f"than {self.within_factor:g} times as large."
        ]

    def _over(self, over: Sequence[int], buckets: Sequence[int]) -> str:
        if not self.largest:
            return "captures none"
        if self.over == "refused":
            return "stops at start"
        if self.over == "clipped":
            return f"captures {self.largest} instead"
        if not any(0 < size <= (self.most or size) for size in buckets):
            return "leaves all out and captures none"
        return f"leaves {_it(over)} out"

    def _misaligned(self, odd: Sequence[int]) -> str:
        if self.misaligned == "dropped":
            return f"leaves {_it(odd)} out"
        rest = f", or leaves {_it(odd)} out where that passes the largest size"
        return f"rounds {_it(odd)} up{rest if self.misaligned == 'rounded_within' else ''}"


@dataclass(frozen=True)
class Variant:
    """One of the graphs that an engine captures for a size.

    Attributes
    ----------
    name
        Mode and adapter case, such as ``FULL, no adapter``; empty where there is only one.
    up_to
        Largest size it is captured for, in the unit of the sizes; None: for all.
    """

    name: str
    up_to: int | None


ONE_VARIANT = (Variant("", None),)


def is_prefill(axis: str | None, phase: str | None) -> bool:
    """Say whether a list is that of prefill: by its phase, else by its axis, which is tokens then.

    For engines whose decode graphs count requests.
    """
    return phase in ("prefill", "mixed") if phase else axis == "tokens"


def release(version: str | None) -> tuple[int, int, int] | None:
    """Return the first three numbers of a version, or None where there are not two."""
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def version_of(config: Mapping[str, Any]) -> str | None:
    """Return the engine's version where the run tells it."""
    version = config.get("engine_version")
    return version if isinstance(version, str) else None


def query_len(config: Mapping[str, Any]) -> int:
    """Return the tokens of a request in a decode step."""
    return 1 + (positive_int(dict(config), "speculative_tokens") or 0)


def cover(wanted: int | None, captured: Sequence[int], default: int, rules_of: Rules) -> Rules:
    """Return rules that keep batches of ``wanted`` in a graph, where the engine has that now.

    ``default`` is how far the engine's own list reaches, used where ``captured`` is not told.
    """
    if wanted is None or rules_of.exact_only:
        return rules_of
    size = int(rules_of.legal_above(np.array([wanted]))[0])
    reach = max(captured, default=default)
    if not 0 < size <= reach:
        return rules_of
    told = f"{size} {rules_of.axis} keep the fullest batch of the scheduler in a graph."
    before = rules_of.reasons.get("must_contain")
    return replace(
        rules_of,
        must_contain=tuple(sorted({*rules_of.must_contain, size})),
        reasons={**rules_of.reasons, "must_contain": f"{before} {told}" if before else told},
    )


def _it(sizes: Sequence[int]) -> str:
    return "it" if len(set(sizes)) == 1 else "them"


def _named(sizes: Sequence[int]) -> str:
    distinct = sorted(set(sizes))
    return f"{_listed(distinct)} {'is' if len(distinct) == 1 else 'are'}"


def _listed(sizes: Sequence[int]) -> str:
    shown = ", ".join(map(str, sizes[:_LISTED]))
    rest = len(sizes) - _LISTED
    return f"{shown} and {count(rest, 'other')}" if rest > 0 else shown
