"""One bucket list after another, priced at once: what an editor of the list shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdiag.buckets.answer import Plan
from graphdiag.buckets.flags import flags
from graphdiag.buckets.setting import Setting
from graphdiag.buckets.valuer import Valuer, as_buckets


@dataclass(frozen=True)
class Priced:
    """A list as it was asked for, what it gives, and how to ask an engine for it.

    Attributes
    ----------
    plan
        What the engine would make of the list.
    remarks
        Ways in which the engine would not do as the list says.
    flags
        The engine's own words for it, by engine: that of the trace, or all where it is not known.
    """

    plan: Plan
    remarks: list[str]
    flags: dict[str, str]


class WhatIf:
    """Prices bucket lists on the traffic of a setting, as ``graphdiag buckets --what-if`` does.

    Attributes
    ----------
    current
        The list that the engine has now, empty where it is not known.
    """

    def __init__(self, setting: Setting) -> None:
        self.current: list[int] = setting.rules.normalised(setting.traffic.captured.tolist())
        self._setting = setting
        self._valuer = Valuer(setting, setting.problem(), as_buckets(self.current))

    @property
    def notes(self) -> list[str]:
        """What the traffic leaves out or assumes, and what it cannot tell."""
        setting = self._setting
        return [*setting.notes, *setting.not_identifiable, *setting.memory.notes]

    def priced(self, sizes: Sequence[int]) -> Priced:
        """Return what ``sizes`` give."""
        setting = self._setting
        asked = sorted(set(sizes))
        pasted = flags(asked, setting.config, setting.list_phase) if asked else {}
        return Priced(
            plan=self._valuer.plan(as_buckets(setting.rules.normalised(asked))),
            remarks=setting.rules.complaints(asked),
            flags={
                name: flag
                for name, flag in pasted.items()
                if setting.engine is None or name == setting.engine
            },
        )

    def most_padded(self, number: int) -> list[int]:
        """Return the requested sizes that the current list pads most, ascending."""
        traffic = self._setting.traffic
        buckets = as_buckets(self.current)
        sizes = traffic.sizes[traffic.sizes <= max(self.current, default=0)]
        padded = buckets[buckets.searchsorted(sizes)] - sizes if len(buckets) else sizes
        rows = padded * traffic.counts[: len(sizes)]
        worst = rows.argsort(kind="stable")[::-1][:number]
        return sorted(int(size) for size, row in zip(sizes[worst], rows[worst], strict=True) if row)
