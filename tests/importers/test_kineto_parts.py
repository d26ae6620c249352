"""Times, array structure, intervals and call names."""

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphdiag.importers.kineto import calls
from graphdiag.importers.kineto.header import parse_header
from graphdiag.importers.kineto.intervals import busy
from graphdiag.importers.kineto.structure import elements
from graphdiag.importers.kineto.times import Coarse, exact_ns, nanoseconds
from tests.importers.kineto_traces import union


@given(st.integers(0, (1 << 43) * 1000 - 1))
def test_floats_below_the_limit_are_exact(ns: int) -> None:
    text = str(Decimal(ns) / 1000)
    assert exact_ns(text.encode()) == ns
    assert nanoseconds([float(text)]).tolist() == [ns]


@given(st.integers(0, 1 << 61))
def test_text_is_exact_everywhere(ns: int) -> None:
    assert exact_ns(f"{ns // 1000}.{ns % 1000:03}".encode()) == ns
    assert exact_ns(f'"{ns // 1000}"'.encode()) == ns // 1000 * 1000


def test_absolute_floats_are_refused_and_absolute_integers_are_not() -> None:
    with pytest.raises(Coarse):
        nanoseconds([1.683564901540885e15])
    assert nanoseconds([1683564901540885]).tolist() == [1683564901540885000]
    with pytest.raises(ValueError, match="missing"):
        nanoseconds([1.0, None])
    for odd in (b"NaN", b"1e400", b"", b"null", b"9" * 30, b"1e25"):
        with pytest.raises((ValueError, ArithmeticError)):
            exact_ns(odd)


JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a{}[]",:\\é \n', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='k{"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=6), st.data())
def test_elements_are_found_whole(values: list[object], data: st.DataObject) -> None:
    text = json.dumps(values, ensure_ascii=False).encode()[1:] + b', "after": [{"a": 1}]}'
    found = elements(text)
    pieces = [text[a:b] for a, b in zip(found.starts, found.ends, strict=True)]
    assert [json.loads(piece) for piece in pieces] == values
    assert found.closed is not None
    assert text[: found.closed] == json.dumps(values, ensure_ascii=False).encode()[1:]
    cut = data.draw(st.integers(0, found.closed - 1))
    part = elements(text[:cut])
    whole = [end for end in found.ends.tolist() if end <= cut]
    assert (part.ends.tolist(), part.closed) == (whole, None)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-50, 50), st.integers(0, 30)), max_size=30)
)
def test_busy_is_the_union_of_each_group(found: list[tuple[int, int, int]]) -> None:
    group = np.array([g for g, _, _ in found], np.int64)
    start = np.array([s for _, s, _ in found], np.int64)
    end = start + np.array([d for _, _, d in found], np.int64)
    measured = busy(start, end, group, 4)
    for g in range(4):
        mine = [(s, s + d) for each, s, d in found if each == g]
        assert measured.count[g] == len(mine)
        assert measured.union[g] == union(mine)
        if mine:
            span = max(b for _, b in mine) - min(a for a, _ in mine)
            assert measured.span[g] == span
            assert measured.idle[g] == span - union(mine)


L, G, B, H = calls.LAUNCH, calls.GRAPH, calls.BLOCKING, calls.HIP


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("cudaLaunchKernel", L),
        ("cudaLaunchKernelExC", L),
        ("cudaLaunchCooperativeKernel", L),
        ("cuLaunchKernelEx", L),
        ("cudaGraphLaunch", L | G),
        ("cuGraphLaunch", L | G),
        ("hipGraphLaunch", L | G | H),
        ("hipExtModuleLaunchKernel", L | H),
        ("hipModuleLaunchKernel", L | H),
        ("hipMemcpyWithStream", B | H),
        ("cudaMemcpy", B),
        ("cuMemcpyDtoH_v2", B),
        ("cudaMemcpyAsync", 0),
        ("cuMemcpyHtoDAsync_v2", 0),
        ("cudaMemset", 0),
        ("cudaDeviceSynchronize", B),
        ("hipEventSynchronize", B | H),
        ("cuCtxSynchronize", B),
        ("cudaStreamWaitEvent", 0),
        ("cudaStreamBeginCapture", calls.CAPTURE_BEGIN),
        ("hipGraphInstantiateWithFlags", calls.CAPTURE_END | H),
        ("cudaGraphAddMemcpyNode", 0),
        ("cudaGraphKernelNodeSetParams", 0),
        ("INVALID", 0),
    ],
)
def test_what_calls_do(name: str, flags: int) -> None:
    assert calls.CallFlags()[name] == flags


def test_header_in_any_form() -> None:
    keys = {
        "distributedInfo": "{'backend': 'nccl', 'rank': '5', 'world_size': 16}",
        "deviceProperties": "[{'id': 0, 'name': ''}, {'id': 1, 'name': 'MI300X'}]",
        "baseTimeNanoseconds": "1767189312000000000",
        "hip_driver_version": 70253211,
    }
    header = parse_header(keys)
    assert (header.rank, header.base_ns, header.run) == (5, 1767189312000000000, None)
    assert header.config == {"device": "MI300X", "driver": "70253211", "world_size": 16}
    for odd in ("[{'id'", "N/A", 7, None, [None], [{"name": 3}], "__import__('os')"):
        assert parse_header({"deviceProperties": odd, "distributedInfo": odd}).config == {}
