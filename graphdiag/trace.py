"""Open a trace of format 1, wherever it lies and whether or not it is still being written.

A trace is a Parquet file, a folder of parts with live tails, a glob, a list of these, or an
fsspec URL of any of them. Nothing but footers and tails is read until it is asked for.

The folder rule (the writer's side is in ``graphdiag_collectors.files``): tail ``_tail-ID-N.arrow``
holds exactly the rows that become ``part-ID-N.parquet``, so a tail whose part is read too is left
out, and a tail that vanishes while we look has just become a part.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import polars as pl

from graphdiag.errors import NoRowsYet, SourceError
from graphdiag.parts import (
    ParquetFile,
    Part,
    Rows,
    check_schema,
    joined,
    no_rows,
    read_tail,
    reading,
)
from graphdiag.places import Place, resolve
from graphdiag.timerange import TimeRange

_PARQUET_MAGIC = b"PAR1"
_TAIL_MAGIC = b"\xff\xff\xff\xff"
_LOOKS = 3
"""How often a folder is listed again when a tail vanishes while it is being read."""
_MOST_WORKERS = 4
"""Most batches worked on at a time: each takes some 50 MB."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Trace:
    """Rows of format 1.

    Attributes
    ----------
    source
        The trace as the person named it.
    frame
        One row an event, every column of :mod:`graphdiag_collectors.schema` in order; lazy.
    notes
        Sentences about parts that could not be read; reports print them.
    parts
        Where the rows of ``frame`` come from; none where ``frame`` itself is in memory.
    """

    source: str
    frame: pl.LazyFrame
    notes: tuple[str, ...] = field(default=())
    parts: tuple[Part, ...] = field(default=())

    def steps(self) -> pl.LazyFrame:
        """Rows of event ``step``."""
        return self.frame.filter(pl.col("event") == "step")

    def requests(self) -> pl.LazyFrame:
        """Rows of event ``request``."""
        return self.frame.filter(pl.col("event") == "request")

    def events(self) -> pl.DataFrame:
        """All rows that are no steps and no requests, in order of time: the small tables.

        Raises
        ------
        SourceError
            When a part turns out to be damaged or gone.
        """
        rows = self.collect(self.frame.filter(~pl.col("event").is_in(["step", "request"])))
        return rows.sort("t_ns", maintain_order=True)

    def first_ns(self) -> int | None:
        """Return when the first event of any sort began, wall-clock ns; None without times.

        Raises
        ------
        SourceError
            When a part turns out to be damaged or gone.
        """
        first = self.collect(self.frame.select(pl.col("t_ns").min())).item()
        return None if first is None else int(first)

    def within(self, time: TimeRange) -> Trace:
        """Return the rows that began in ``time`` alone; those without a time are left out."""
        parts = tuple(part.within(time) for part in self.parts)
        frame = pl.concat([part.frame() for part in parts]) if parts else self.frame
        return replace(self, frame=frame.filter(time.holds()), parts=parts)

    def collect(self, query: pl.LazyFrame) -> pl.DataFrame:
        """Return the result of a query on :attr:`frame` that keeps few of its rows.

        Raises
        ------
        SourceError
            When a part turns out to be damaged or gone.
        """
        try:
            with reading(self.source):
                return query.collect(engine="streaming")
        except SourceError:
            if len(self.parts) > 1:
                for _ in self.batches(self.frame.collect_schema().names()):
                    pass  # reading it part by part says which one it is
            raise

    def batches(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield all rows, ``columns`` alone, text as Categorical, in batches of bounded size.

        There is always one batch, if an empty one.

        Raises
        ------
        SourceError
            When a part turns out to be damaged or gone.
        """
        parts = self.parts or (Rows(self.source, self.frame.collect()),)
        yield no_rows(columns)
        yield from joined(batch for part in parts for batch in part.batches(columns))

    def map(self, columns: Sequence[str], work: Callable[[pl.DataFrame], _T]) -> Iterator[_T]:
        """Yield ``work(batch)`` of each of :meth:`batches`, in their order.

        A few batches are worked on at a time, in threads, while the next is read.

        Raises
        ------
        SourceError
            When a part turns out to be damaged or gone.
        """
        workers = min(os.cpu_count() or 1, _MOST_WORKERS)
        with ThreadPoolExecutor(workers, thread_name_prefix="graphdiag") as pool:
            running: deque[Future[_T]] = deque()
            for batch in self.batches(columns):
                running.append(pool.submit(work, batch))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()


def looks_like_trace(place: Place) -> bool:
    """Say whether ``place`` is a folder, or a file that starts like a trace.

    A folder need not hold a trace yet, nor a file be whole; what cannot be read is none.
    """
    try:
        if place.is_folder():
            return True
        with place.open() as file:
            head = file.read(4)
    except OSError:
        return False
    return head in (_PARQUET_MAGIC, _TAIL_MAGIC) or (
        not head and place.path.endswith((".parquet", ".arrow"))
    )


def open_trace(
    source: str | Path | Sequence[str | Path | Place], known: Collection[str] = ()
) -> Trace:
    """Open a file, a folder being written, a glob, an fsspec URL, or a list of these.

    What is named twice is read once; files without rows are left out. ``known`` are paths of sealed
    parts that were opened before: they are not looked at again, for they never change.

    Raises
    ------
    SourceError
        When nothing is there, nothing is a trace, it holds no rows, or the format is newer than
        this version reads.
    """
    given = [source] if isinstance(source, str | Path) else list(source)
    places = {
        place.path: place
        for one in given
        for place in ([one] if isinstance(one, Place) else resolve(str(one)))
    }
    parts: list[Part] = []
    notes: list[str] = []
    for place in places.values():
        if place.is_folder():
            opened, unread = _open_folder(place, known)
            parts += opened
            notes += unread
        elif not (_is_tail(place) and _part_of(place.path) in places):
            opened, unread = _open_file(place)
            parts += opened
            notes += unread
    if not parts and places:
        raise SourceError(f"{_names(places.values())}: no rows to read: the trace is empty.")
    if not parts:
        raise SourceError("no trace given; name a trace.parquet, a folder of parts, or a glob.")
    return Trace(
        source=_names(given),
        frame=pl.concat([part.frame() for part in parts]),
        notes=tuple(notes),
        parts=tuple(parts),
    )


def _names(given: Iterable[str | Path | Place]) -> str:
    return ", ".join(one.name if isinstance(one, Place) else str(one) for one in given)


def _open_file(place: Place) -> tuple[list[Part], list[str]]:
    """Return the rows of a file, none where it has none, and notes on what is missing."""
    if not _is_tail(place):
        part = ParquetFile(place)
        footer = part.footer()
        check_schema(place.name, footer.schema.to_arrow_schema())
        return [part] if footer.num_rows else [], []
    with reading(place.name), place.open() as file:
        rows, note = read_tail(place.name, file)
    if rows.rows.is_empty():
        raise SourceError(f"{place.name}: no whole batch of rows is in it; give its folder.")
    return [rows], [note] if note else []


def _open_folder(folder: Place, known: Collection[str]) -> tuple[list[Part], list[str]]:
    """Return the parts of a folder, each row once, and notes on what is missing."""
    for _ in range(_LOOKS):
        with reading(folder.name):
            # Tails first: one that is sealed between the two listings is then seen at least once.
            tails = [place for place in folder.children() if _is_tail(place)]
            parts = [place for place in folder.children() if _is_part(place)]
        sealed = {place.path for place in parts}
        live = [_read_tail(tail) for tail in tails if _part_of(tail.path) not in sealed]
        whole = [rows for rows in live if rows is not None]
        if len(whole) == len(live):
            break
    else:
        raise SourceError(f"{folder.name}: its tails change too fast; try again.")
    opened, notes = _open_parts(parts, known)
    opened += [rows for rows, _ in whole if not rows.rows.is_empty()]
    notes += [note for _, note in whole if note]
    if not opened:
        why = _why_empty(folder, notes, bool(live), bool(parts))
        begins = bool(live) or next(iter(folder.children()), None) is None
        kind = NoRowsYet if begins and not notes else SourceError
        raise kind(f"{folder.name}: no rows to read: {why}")
    return opened, notes


def _read_tail(tail: Place) -> tuple[Rows, str | None] | None:
    """Return the rows of a live tail and a note, None where it has just become a part."""
    with reading(tail.name):
        try:
            with tail.open() as file:
                rows, note = read_tail(tail.name, file)
        except FileNotFoundError:
            return None
    return replace(rows, becomes=_part_of(tail.path)), note


def _open_parts(places: list[Place], known: Collection[str]) -> tuple[list[Part], list[str]]:
    """Return the parts that can be read, and a note for each that cannot."""
    opened: list[Part] = []
    notes: list[str] = []
    for place in places:
        part = ParquetFile(place)
        if place.path in known:
            opened.append(part)
            continue
        try:
            with reading(place.name):
                if place.is_folder():
                    notes.append(f"{place.name} is a folder and was not read; name it as well.")
                    continue
                if place.size() == 0:
                    notes.append(
                        f"{place.name} has zero bytes; the rows it should hold are missing."
                    )
                    continue
                footer = part.footer()
        except SourceError as error:
            notes.append(f"The rows of a part are missing: {error}")
            continue
        check_schema(place.name, footer.schema.to_arrow_schema())
        if footer.num_rows:
            opened.append(part)
    return opened, notes


def _why_empty(folder: Place, notes: list[str], recording: bool, sealed: bool) -> str:
    if notes:
        return notes[0]
    if recording:
        return "its recording has only begun; try again in a second."
    if sealed:
        return "the trace is empty."
    if any(not child.base.startswith(("_", ".")) for child in folder.children()):
        files = f"{folder.name.rstrip('/')}/*"
        return (
            f"it holds no part-*.parquet and no live tail; to read the files in it, give {files}."
        )
    return "it holds no part-*.parquet and no live tail; is it the folder the recorder was given?"


def _is_tail(place: Place) -> bool:
    return place.path.endswith(".arrow")


def _is_part(place: Place) -> bool:
    return place.path.endswith(".parquet") and not place.base.startswith(("_", "."))


def _part_of(tail: str) -> str:
    """Return the path of the part that a tail becomes."""
    folder, _, base = tail.rpartition("/")
    sealed = base.removeprefix("_tail-").removesuffix(".arrow")
    return f"{folder}/part-{sealed}.parquet"
