"""A channel with a second lane, of rows that an engine's collector packs itself."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from graphdiag_collectors.blocks import Fields, Lane, join
from graphdiag_collectors.channel import Channel, Refuse, Start
from graphdiag_collectors.labels import Words


class PackedChannel(Channel):
    """A channel whose usual steps may also be recorded as narrow rows, in ``lane``.

    ``pack`` packs one row into a block at an offset; ``width`` is its bytes.
    """

    def __init__(
        self,
        wake: SimpleQueue[None],
        defaults: Words,
        refuse: Refuse,
        start: Start,
        *,
        lane: Lane,
        pack: Callable[..., None],
        width: int,
    ) -> None:
        super().__init__(wake, defaults, refuse, start)
        self._packed, self._pack, self._width = lane, pack, width

    def place_row(self, *row: Any) -> None:
        """Record a row the slow way: there is no block yet, or it is full, or a value is odd."""
        lane = self._packed
        try:
            if not lane.block:
                self._start_lane(lane)
            if lane.offset + self._width > len(lane.block):
                lane.swap()
            self._pack(lane.block, lane.offset, *row)
            lane.offset += self._width
        except Exception as error:
            self.refuse(f"{type(error).__name__}: {error}")

    def take(self) -> Fields | None:
        """Return the rows recorded since the last call; the writer's, as the rest below."""
        return join(super().take(), self._packed.take())

    def dropped(self) -> int:
        """Return how many rows were dropped because the writer fell behind."""
        return super().dropped() + self._packed.dropped()

    def stop(self) -> None:
        """Drop every later row."""
        super().stop()
        self._packed.stop()

    def sleep(self) -> None:
        """Forget every row, and ask to be started by the next one."""
        super().sleep()
        self._packed.sleep()
