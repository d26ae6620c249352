"""What a bucket set costs in device memory and in warm-up: measured on captures, or given.

Graphs of one pool are captured largest first, so that the first carries the pool and every further
one adds its executable and little else. The pool is taken to grow in proportion to the largest
bucket, as the activations of a step do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from graphdiag.buckets.engines import Variant
from graphdiag.metrics import graph_bytes, is_target
from graphdiag.summary import Summary
from graphdiag.wording import count, size_in_bytes

MIB = 2**20


@dataclass(frozen=True)
class Memory:
    """Memory and warm-up of bucket sets.

    Attributes
    ----------
    variants
        The graphs captured for a size.
    pool_mib, pool_size
        Pool in MiB where the largest bucket is ``pool_size``; None where not identifiable.
    graph_mib, graph_seconds
        Memory in MiB and capture time in s of one more graph; None where not identifiable.
    total_mib, total_graphs
        Memory in MiB of all graphs together, and their number, where only that is on record.
    notes
        What is missing, in sentences.
    """

    variants: tuple[Variant, ...]
    pool_mib: float | None = None
    pool_size: int | None = None
    graph_mib: float | None = None
    graph_seconds: float | None = None
    total_mib: float | None = None
    total_graphs: int = 0
    notes: tuple[str, ...] = ()

    def graphs(self, buckets: Sequence[int]) -> int:
        """Return how many graphs the engine captures for ``buckets``."""
        return sum(
            len(buckets)
            if variant.up_to is None
            else sum(1 for size in buckets if size <= variant.up_to)
            for variant in self.variants
        )

    @property
    def is_even(self) -> bool:
        """Whether every size is as many graphs."""
        return len({variant.up_to for variant in self.variants}) < 2

    def most_graphs(self, count: int) -> int:
        """Return the most graphs that ``count`` buckets can be."""
        return count * len(self.variants)

    def mib(self, buckets: Sequence[int]) -> float | None:
        """Return MiB that ``buckets`` hold; None where not identifiable."""
        if self.graph_mib is None or self.pool_mib is None:
            return None
        return self._pool(max(buckets, default=0)) + self.graph_mib * self.graphs(buckets)

    def seconds(self, buckets: Sequence[int]) -> float | None:
        """Return the s that capturing ``buckets`` takes; None where not identifiable."""
        return None if self.graph_seconds is None else self.graph_seconds * self.graphs(buckets)

    def largest_within(self, mib: float, graphs: int) -> float:
        """Return the largest bucket with which ``graphs`` graphs fit into ``mib``; 0 where none.

        Raises
        ------
        ValueError
            When memory is not identifiable.
        """
        if self.graph_mib is None or self.pool_mib is None:
            raise ValueError("memory is not identifiable")
        left = mib - self.graph_mib * graphs
        if left < 0:
            return 0.0
        if not self.pool_mib or not self.pool_size:
            return float("inf")
        return left / self.pool_mib * self.pool_size

    def _pool(self, largest: int) -> float:
        if not self.pool_mib or not self.pool_size:
            return self.pool_mib or 0.0
        return self.pool_mib * largest / self.pool_size


def measure_memory(summary: Summary, variants: tuple[Variant, ...]) -> Memory:
    """Measure memory and warm-up on the captures of the last run, on its fullest rank."""
    captures = summary.events.filter((pl.col("event") == "capture") & is_target())
    found = Memory(variants)
    if captures.is_empty():
        return replace(found, notes=("What a graph costs: no capture is on record.",))
    captures = captures.filter(pl.col("run").eq_missing(pl.lit(captures["run"][-1])))
    weight = pl.col("weight").fill_null(1)
    ranks = captures.group_by("rank", "pid").agg(weight.sum().alias("graphs"))
    rank = ranks.sort("graphs", "rank", descending=[True, False]).row(0, named=True)
    mine = captures.filter(
        *(pl.col(key).eq_missing(pl.lit(rank[key])) for key in ("rank", "pid"))
    ).sort("t_ns", maintain_order=True)
    timed = mine.filter(pl.col("dur_ns").is_not_null())
    number = int(timed.select(weight.sum()).item())
    if number:  # 0 where a log tells their time and not how many they were
        found = replace(found, graph_seconds=int(timed["dur_ns"].sum()) / number / 1e9)
    return _with_pool(found, mine, int(rank["graphs"]), graph_bytes(summary.events))


def given(
    memory: Memory,
    *,
    pool_mib: float | None = None,
    pool_size: int | None = None,
    graph_mib: float | None = None,
    graph_seconds: float | None = None,
) -> Memory:
    """Return ``memory`` with what a person knows in place of what was measured.

    Where the memory of all graphs together is on record, ``graph_mib`` alone tells the pool: it is
    what is left. ``pool_size`` is the largest bucket the pool was grown for.
    """
    if graph_mib is not None and pool_mib is None and memory.total_mib is not None:
        pool_mib = max(memory.total_mib - graph_mib * memory.total_graphs, 0.0)
    if pool_mib is None and graph_mib is not None and memory.pool_mib is None:
        pool_mib = 0.0
    known = replace(
        memory,
        pool_mib=memory.pool_mib if pool_mib is None else pool_mib,
        pool_size=memory.pool_size or pool_size,
        graph_mib=memory.graph_mib if graph_mib is None else graph_mib,
        graph_seconds=memory.graph_seconds if graph_seconds is None else graph_seconds,
    )
    complete = known.pool_mib is not None and known.graph_mib is not None
    return replace(known, notes=() if complete else known.notes)


def _with_pool(found: Memory, captures: pl.DataFrame, graphs: int, total: int | None) -> Memory:
    """Tell the pool, which the first and largest capture carries, from the executables."""
    taken = pl.coalesce(pl.col("mem_before") - pl.col("mem_after"), "pool_bytes")
    each = captures.with_columns(taken.alias("taken")).drop_nulls(["taken", "size"])
    largest = captures["size"].max()
    if len(each) == graphs >= 2 and each["size"][0] == largest:
        first = int(each["taken"][0])
        graph = max(int(each["taken"].sum()) - first, 0) / (graphs - 1)
        return replace(
            found,
            pool_mib=max(first - graph, 0.0) / MIB,
            pool_size=int(each["size"][0]),
            graph_mib=graph / MIB,
        )
    much = "nothing" if total is None else f"{size_in_bytes(total)} over {count(graphs, 'graph')}"
    return replace(
        found,
        total_mib=None if total is None else total / MIB,
        total_graphs=graphs,
        notes=(
            f"How much memory one more graph takes: of their memory the trace tells {much}, not "
            "each capture's; give --mib-per-graph.",
        ),
    )
