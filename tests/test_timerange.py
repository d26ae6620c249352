import pytest

from graphdiag.parts import BATCH_ROWS
from graphdiag.timeorder import in_time_order
from graphdiag.timerange import TimeRange, iso, parse_window
from graphdiag.trace import open_trace
from tests.build import MS, START_NS, event, step, trace, write
from tests.recordings import folder, requested

FIRST = 1_777_887_000_000_000_000  # 2026-05-04T09:30:00Z


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("10..20", FIRST + 10 * 10**9, FIRST + 20 * 10**9),
        ("0.5s .. 1.25s", FIRST + 5 * 10**8, FIRST + 125 * 10**7),
        ("..2026-05-04T09:30:01.000000007Z", -(1 << 62), FIRST + 10**9 + 7),
        ("2026-05-04T09:30..2026-05-04T11:30:01+02:00", FIRST, FIRST + 10**9),
        ("2026-05-04 09:30:00.5..", FIRST + 5 * 10**8, 1 << 62),
        ("-1..2026-05-04T09:30:00", FIRST - 10**9, FIRST),
    ],
)
def test_windows_as_people_type_them(text, start, end):
    assert parse_window(text).over(FIRST) == TimeRange(start, end)


@pytest.mark.parametrize("text", ["", "..", "10", "20..10", "1..x", "5..5", "nan..1", "1e9..2"])
def test_what_is_no_window_gets_a_sentence(text):
    with pytest.raises(ValueError, match=r"\.$"):
        parse_window(text)


def test_an_empty_window_is_said_to_be_empty():
    for text in ("5..5", "5..5.000", "2026-05-04T09:30:00..2026-05-04T09:30:00Z"):
        with pytest.raises(ValueError, match="the window is empty, it ends where it starts"):
            parse_window(text)
    with pytest.raises(ValueError, match="the window ends before it starts"):
        parse_window("20..10")


def test_a_time_is_written_as_it_is_read():
    for ns in (FIRST, FIRST + 7, FIRST + 120 * MS):
        assert parse_window(f"{iso(ns)}..").over(0).start_ns == ns


def test_rows_are_cut_by_when_they_began(tmp_path):
    parted = folder(
        tmp_path / "t",
        part_a=[step(1, 1, 0.0), step(2, 2, 10.0)],
        part_b=[step(3, 3, 20.0), step(4, 4, t_ns=None)],
        tail_c=[step(5, 5, 30.0)],
    )
    opened = open_trace(parted)
    assert opened.first_ns() == START_NS
    window = TimeRange(START_NS + 10 * MS, START_NS + 30 * MS)
    assert requested(opened.within(window)) == [2, 3]
    in_memory = trace([step(1, 1, 0.0), step(2, 2, 10.0)]).within(window)
    assert requested(in_memory) == [2]
    assert requested(opened.within(TimeRange(0, 1))) == []


def test_rows_come_in_order_of_time_however_the_parts_lie(tmp_path, monkeypatch):
    monkeypatch.setattr("graphdiag.timeorder._BATCH_ROWS", 1024)
    times = [(7 * number) % 5000 for number in range(5000)]
    write([step(1, 1, at) for at in times[:2500]], tmp_path / "part-a.parquet")
    write(
        [step(1, 1, at) for at in times[2500:]] + [event("run", t_ns=None)],
        tmp_path / "part-b.parquet",
    )
    batches = list(in_time_order(open_trace(tmp_path), ["t_ns", "requested"]))
    assert len(batches) > 2
    assert max(len(rows) for _, rows in batches) < 3000 < BATCH_ROWS
    found = [ns for _, rows in batches for ns in rows["t_ns"]]
    assert found == [START_NS + at * MS for at in range(5000)]
    assert batches[-1][0] == 1
    assert list(in_time_order(trace([event("run", t_ns=None)]), ["t_ns"])) == []
