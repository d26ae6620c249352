"""Replays of CUDA graphs, counted by artifact: the hot half of the torch graph hooks.

A replay adds one to the tally that its graph object carries and to the process's totals. An engine
whose steps are recorded takes the difference of the totals over a step, and so claims those
replays; what nobody claimed is told once a second in a mark, so that all replays add up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from graphdiag_collectors.marks import GRAPH_REPLAYS

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

MOST_TALLIES = 4096
MOST_NAMED = 64
SLOT = "_graphdiag_tally"


class Tally:
    """The replays of one artifact; the graph object carries it.

    Attributes
    ----------
    artifact, size
        Its name in the trace, and the bucket it serves where somebody said so.
    columns
        What else somebody said of it that its capture's event is to carry.
    count, launch_ns
        Replays, and host time (ns) inside them.
    pending
        The capture under way; the capture hooks' own.
    """

    __slots__ = (
        *("_settled", "_told", "artifact", "columns", "count", "launch_ns", "pending", "size"),
    )

    def __init__(self, artifact: str) -> None:
        self.artifact = artifact
        self.size: int | None = None
        self.columns: dict[str, Any] = {}
        self.pending: Any = None
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.count = self.launch_ns = 0
        self._settled = self._told = (0, 0)

    def take(self, everything: bool) -> tuple[int, int]:
        """Return replays and host ns not taken yet, up to now or up to the last call."""
        now = (self.count, self.launch_ns)
        settled = now if everything else self._settled
        told, self._told, self._settled = self._told, settled, now
        return settled[0] - told[0], settled[1] - told[1]


class Replays:
    """All replays of this process.

    Attributes
    ----------
    count, launch_ns
        Replays since the hooks are on, and host time (ns) inside them.
    timed
        Whether ``launch_ns`` is measured.
    """

    def __init__(self) -> None:
        self.timed = True
        self._tallies: list[Tally] = []
        self._others = Tally("other graphs")
        self._numbers: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Forget all counts, not the artifacts: those of a forked child begin here."""
        for tally in (*self._tallies, self._others):
            tally.reset()
        self.count = self.launch_ns = 0
        self._claimed = self._settled = self._told = 0
        self._beats = (time.time_ns(),) * 2

    def tally(self, graph: Any, place: str = "graph captured before recording") -> Tally:
        """Return the graph object's tally; one made here is named after ``place``."""
        found: Tally | None = getattr(graph, SLOT, None)
        if found is not None:
            return found
        made = self._others
        if len(self._tallies) < MOST_TALLIES:
            number = self._numbers[place] = self._numbers.get(place, 0) + 1
            made = Tally(f"{place}#{number}")
            self._tallies.append(made)
        setattr(graph, SLOT, made)
        return made

    def add(self, graph: Any, launch_ns: int) -> None:
        """Count one replay of a graph that may have no tally yet."""
        tally = self.tally(graph)
        tally.count += 1
        tally.launch_ns += launch_ns
        self.count += 1
        self.launch_ns += launch_ns

    def claim(self, before: tuple[int, int]) -> tuple[int, int | None]:
        """Return replays and host ns since the totals were ``before``; a step accounts for them."""
        count = self.count - before[0]
        self._claimed += count
        return count, self.launch_ns - before[1] if self.timed else None

    def tell(self, recorder: Recorder, everything: bool = False) -> None:
        """Record the replays that no step has claimed, in one mark if there are any.

        A step claims its replays when it ends, so what came after the last call waits for the
        next one, unless ``everything`` is told now.
        """
        now = time.time_ns()
        (begin, settled), self._beats = self._beats, (self._beats[1], now)
        replays: dict[str, int] = {}
        launch_ns = 0
        for tally in (*self._tallies, self._others):
            count, took_ns = tally.take(everything)
            launch_ns += took_ns
            if count:
                replays[tally.artifact] = replays.get(tally.artifact, 0) + count
        self._settled += sum(replays.values())
        free = self._settled - self._claimed - self._told
        if free <= 0:
            return
        self._told += free
        named = dict(sorted(replays.items(), key=lambda item: -item[1])[:MOST_NAMED])
        details: dict[str, Any] = {"artifacts": named}
        if len(replays) > len(named):
            details["other_artifacts"] = sum(replays.values()) - sum(named.values())
        if self.timed:
            details["launch_ns"] = launch_ns
        end = now if everything else settled
        recorder.mark(GRAPH_REPLAYS, details, weight=free, t_ns=begin, dur_ns=end - begin)
