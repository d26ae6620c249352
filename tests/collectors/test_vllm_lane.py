"""Rows of vLLM's steps in their own layout, and together with wide ones."""

from __future__ import annotations

from pathlib import Path

from graphdiag_collectors import Recorder
from graphdiag_collectors.blocks import BLOCK_ROWS, NULL
from graphdiag_collectors.vllm_lane import ROW_WIDTH, Shape, ShapedChannel, pack_row, pack_single
from tests.collectors.rows import steps

PIECES = 3


def channel_of(recorder: Recorder) -> ShapedChannel:
    return recorder.channel_of(ShapedChannel, runner="target", axis="tokens")


def shape(channel: ShapedChannel, bucket: int, query: int) -> int:
    words = (None, "decode", None, None, "full", None, None, f"full/{bucket}")
    label = channel.labels.add(words)
    return channel.shaped.code(Shape(label, bucket, query, PIECES, NULL, NULL, NULL))


def test_a_code_is_given_once(recorder: Recorder) -> None:
    channel = channel_of(recorder)
    assert shape(channel, 8, 1) == shape(channel, 8, 1) == 0
    assert shape(channel, 16, 1) == 1
    assert ROW_WIDTH == 64


def test_what_a_row_says(recorder: Recorder, folder: Path) -> None:
    channel = channel_of(recorder)
    single, other = shape(channel, 8, 1), shape(channel, 16, NULL)
    channel.place_row(1.0, 1.5, 1.1, 1.125, 1.25, 900, 7, single, 99, 98)  # the last two are void
    lane = channel.shaped
    pack_single(lane.block, lane.offset, 2.0, 2.5, 2.1, 2.2, 2.3, 907, 7, single)
    lane.offset += ROW_WIDTH
    channel.record(3, 8, "full/8", "full", clock=(2.75, 2.8), phase="decode", kind="dummy")
    pack_row(lane.block, lane.offset, 3.0, float("nan"), 3.1, 3.2, 3.3, 950, 12, other, 4, 3)
    lane.offset += ROW_WIDTH
    recorder.close()
    rows = steps(folder)
    names = ("requested", "bucket", "num_reqs", "tokens_out", "kv_tokens", "query_len", "dur_ns")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (7, 8, 7, 7, 900, 1, 500_000_000),
        (7, 8, 7, 7, 907, 1, 500_000_000),
        (3, 8, None, None, None, None, 50_000_000),
        (12, 16, 4, 3, 950, None, None),
    ]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert [row["dispatch_ns"] for row in rows] == [25_000_000, 100_000_000, None, 100_000_000]
    assert [row["host_ns"] for row in rows] == [250_000_000, 300_000_000, None, 300_000_000]
    assert [row["replays"] for row in rows] == [PIECES, PIECES, None, PIECES]
    assert {row["loras"] for row in rows} == {None}


def test_full_blocks_and_impossible_values(recorder: Recorder, folder: Path) -> None:
    channel = channel_of(recorder)
    code = shape(channel, 8, 1)
    for number in range(BLOCK_ROWS + 2):
        channel.place_row(float(number), number + 0.5, 0.0, 0.0, 0.0, 1, 8, code, 8, 8)
    channel.place_row(0.0, 0.5, 0.0, 0.0, 0.0, 1, None, code, 8, 8)
    recorder.flush()
    assert recorder.status().dropped == 1
    assert len(steps(folder)) == BLOCK_ROWS + 2
    channel.stop()
    channel.place_row(0.0, 0.5, 0.0, 0.0, 0.0, 1, 8, code, 8, 8)
    assert channel.dropped() == 1
