"""Recordings made by hand: folders of parts and live tails, and how tests look at a trace."""

import polars as pl
import pyarrow as pa

from graphdiag.errors import SourceError
from graphdiag.places import resolve
from graphdiag.trace import looks_like_trace
from graphdiag_collectors.files import write_part
from graphdiag_collectors.schema import arrow_schema
from tests.build import table


def requested(opened):
    """The requested sizes of a trace's steps, by both ways of reading it."""
    lazily = opened.steps().select("requested").collect()["requested"].to_list()
    batches = pl.concat(opened.batches(["event", "requested"]))
    assert batches.filter(pl.col("event") == "step")["requested"].to_list() == lazily
    return lazily


def is_trace(path):
    """Whether all that ``path`` names looks like a trace."""
    try:
        places = resolve(path)
    except SourceError:
        return False
    return all(map(looks_like_trace, places))


def tail(rows, *, whole=True):
    """The bytes of a live tail; without its end of stream, as while it is recorded."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema()) as writer:
        for row in rows:
            writer.write_batch(table([row]).to_batches()[0])
    data = sink.getvalue().to_pybytes()
    return data if whole else data[:-8]


def folder(path, **files):
    """A recording's folder: ``part_x=rows`` or bytes, ``tail_x=rows`` or bytes."""
    path.mkdir()
    for name, content in files.items():
        kind, ident = name.split("_", 1)
        target = path / (f"part-{ident}.parquet" if kind == "part" else f"_tail-{ident}.arrow")
        if isinstance(content, bytes):
            target.write_bytes(content)
        elif kind == "part":
            write_part(target, table(content).to_batches())
        else:
            target.write_bytes(tail(content, whole=False))
    return path


def sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text
