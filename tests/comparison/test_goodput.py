"""Goodput: tokens a second within the objective, and whether the candidate has succeeded."""

from unittest.mock import patch

import pytest

from graphdiag import parts
from graphdiag.comparison.answer import StartUp
from graphdiag.comparison.compare import Slo
from graphdiag.comparison.goodput import judge
from graphdiag.comparison.served import measure_requests, measure_served
from graphdiag.summary import summarize
from tests.build import MS, event, trace
from tests.comparison.runs import SIZES, chapter_one, compared, configured, replayed, steps

START = StartUp(
    first_step_s=None,
    compile_s=0.0,
    cache_load_s=0.0,
    capture_s=0.0,
    rest_s=None,
    artifacts=0,
    served=0,
    served_steps=0,
)


def starting(seconds):
    return StartUp(
        first_step_s=seconds,
        compile_s=0.0,
        cache_load_s=0.0,
        capture_s=0.0,
        rest_s=seconds,
        artifacts=0,
        served=0,
        served_steps=0,
    )


def served(rows, slo):
    made = trace(rows)
    return measure_served(made, summarize(made), slo)


def goodput(rows, slo):
    return judged((served(rows, slo),) * 2, slo).base


def judged(pair, slo=5.0, starts=(START, START)):
    return judge(pair, (None, None), starts, slo, None)


def even(ms, number=1000, tokens=10, **columns):
    return steps((10,), number, lambda size: {"ms": ms, "tokens_out": tokens, **columns})


def test_a_token_counts_where_its_step_took_no_longer():
    rows = steps((4, 8), 1000, lambda size: {"ms": float(size)})
    found = goodput(rows, 4.0)
    assert found.tokens_per_s == pytest.approx(500 * 4 / 6.0)
    assert found.share == pytest.approx(1 / 3)
    assert found.steady_share == found.share
    assert goodput(rows, 3.9).tokens_per_s == 0
    assert goodput(rows, 8.0).share == 1


def test_a_row_of_several_steps_is_held_against_its_mean():
    rows = even(8.0, weight=4)
    assert goodput(rows, 2.0).share == 1
    assert goodput(rows, 1.9).share == 0


def test_start_up_is_included_and_left_out():
    late = [event("capture", 990.0, artifact="g", dur_ns=10 * MS)]
    slow = steps((10,), 20, lambda size: {"ms": 50.0})
    found = goodput([*late, *slow, *steps((10,), 1000, replay10, 1000.0)], 5.0)
    assert found.tokens_per_s == pytest.approx(10_000 / (1 + 1000 * 0.004))
    assert found.steady_tokens_per_s == pytest.approx(10_000 / 4, rel=0.01)
    assert found.share == pytest.approx(1000 / 1020)
    assert found.steady_share == 1


def replay10(size):
    return {"ms": 4.0, "bucket": 16}


def test_ranks_of_one_engine_produce_the_same_tokens():
    one = even(4.0)
    both = [*one, *({**row, "rank": 1, "pid": 2} for row in one)]
    assert goodput(both, 5.0) == goodput(one, 5.0)
    parallel = configured(both, data_parallel=2)
    assert goodput(parallel, 5.0).tokens_per_s == pytest.approx(5000)


def test_without_tokens_or_times_nothing_is_known():
    for rows in (even(4.0, tokens=None), even(4.0)[:0], [{**r, "dur_ns": None} for r in even(4.0)]):
        found = goodput(rows, 5.0)
        assert found.tokens_per_s is None
        assert found.share is None


def interrupted(rounds=100):
    """Rounds of 9 decode steps of 4 ms, 10 tokens each, and 20 ms for the prompts of 2 requests."""
    rows, now = [], 0.0
    for _ in range(rounds):
        rows += steps((10,), 9, lambda size: {"ms": 4.0, "bucket": 16}, now)
        rows += steps((600,), 1, prompt, now + 36.0)
        now += 56.0
    return rows


def prompt(size):
    return {"ms": 20.0, "phase": "prefill", "tokens_out": 2, "axis": "tokens"}


def test_prompts_between_two_steps_count_in_the_interval_of_those_that_decode():
    rows = interrupted()
    found = goodput(rows, 5.0)
    # In each round but the first, 8 requests waited 24 ms for a token and 2 had theirs after 4 ms.
    assert found.share == pytest.approx((100 * 90 - 99 * 8) / 9000)
    assert found.tokens_per_s == pytest.approx((9000 - 792) / 5.6)
    assert goodput(rows, 24.0).share == 1
    with patch.object(parts, "BATCH_ROWS", 7):
        assert goodput(rows, 5.0) == found


def test_requests_that_begin_together_wait_for_no_other():
    idle = []
    for start in range(0, 10_000, 1000):
        idle += steps((600,), 1, lambda size: {**prompt(size), "tokens_out": 10}, start)
        idle += steps((10,), 20, lambda size: {"ms": 4.0, "bucket": 16}, start + 20.0)
    assert goodput(idle, 5.0).share == 1


def test_a_clock_set_back_tells_no_interval():
    rows = [*even(4.0, 100), *steps((10,), 100, lambda size: {"ms": 4.0}, -10_000.0)]
    found = goodput(rows, 5.0)
    assert found.share == pytest.approx(199 / 200)  # the first step after the jump waited too long


def asked(number, ttft_ms, every_ms=10.0, start_ms=0.0, **columns):
    told = {"tokens_in": 5, "tokens_out": 20, "dur_ns": 500 * MS, **columns}
    at = [start_ms + i * every_ms for i in range(number)]
    return [event("request", t, ttft_ns=round(ttft_ms(i) * MS), **told) for i, t in enumerate(at)]


def requested(rows, slo):
    made = trace(rows)
    return measure_requests(made, summarize(made), slo)


def test_requests_count_where_their_first_token_came_in_time():
    late = [event("capture", 2990.0, artifact="g", dur_ns=10 * MS)]
    rows = [*late, *steps((10,), 1000, lambda size: {"ms": 4.0}, 3000.0)]
    slow = asked(100, lambda i: 900, 30.0)
    base = requested([*rows, *slow, *asked(400, lambda i: 100 + i % 2, start_ms=3001.0)], 100.0)
    assert (base.requests, base.requests_met, base.steady_requests) == (500, 200, 400)
    faster = requested([*rows, *slow, *asked(400, lambda i: 90, start_ms=3001.0)], 100.0)
    told = judge((None, None), (base, faster), (START, START), None, 100.0)
    assert told.succeeded
    assert told.first_token.base.share == pytest.approx(0.4)
    assert told.first_token.base.steady_share == pytest.approx(0.5)
    assert told.first_token.candidate.tokens_per_s == pytest.approx(400 * 20 / 7.491, rel=0.01)
    assert "within 100 ms for 80.0 % of 500 requests of the candidate and 40.0 %" in told.sentence
    assert told.first_token.gain_ci95[0] > 0
    worse = judge((None, None), (faster, base), (START, START), None, 100.0)
    assert worse.succeeded is False


def test_a_request_without_a_first_token_missed_it():
    rows = [*even(4.0), *asked(10, lambda i: 5), event("request", 7.0, dur_ns=MS, tokens_out=0)]
    found = requested(rows, 5.0)
    assert (found.requests, found.requests_met) == (11, 10)


def test_both_objectives_must_be_met():
    pair = served(even(4.0), 5.0), served(even(3.0), 5.0)
    met, missed = (
        requested([*even(4.0), *asked(400, lambda i, ms=ms: ms)], 100.0) for ms in (90, 110)
    )
    assert judge(pair, (missed, met), (START, START), 5.0, 100.0).succeeded
    assert not judge(pair, (met, missed), (START, START), 5.0, 100.0).succeeded


def test_it_has_succeeded_only_beyond_noise():
    slow, fast = served(even(4.0), 5.0), served(even(3.0), 5.0)
    told = judged((slow, fast))
    assert told.succeeded
    assert told.gain_tokens_per_s == pytest.approx(2500 / 3, rel=0.01)
    assert told.gain_ci95[0] > 0
    assert ": yes. Within the objective the candidate produces 3,333 tokens/s" in told.sentence
    told = judged((fast, slow))
    assert told.succeeded is False
    assert " is included: no. Within" in told.sentence
    told = judged((slow, slow))
    assert told.succeeded is False
    assert told.gain_tokens_per_s == 0


def test_a_gain_within_noise_is_none():
    idle = even(4.0)
    times = [3.0, 5.0, 3.0, 3.0, 5.0, 5.0, 3.0]
    spread = []
    for piece in range(14):
        ms = times[piece % 7]
        start = sum(100 * times[i % 7] for i in range(piece))
        spread += steps((10,), 100, lambda size, ms=ms: {"ms": ms - 0.2}, start)
    told = judged((served(idle, 9.0), served(spread, 9.0)), 9.0)
    assert told.gain_tokens_per_s > 0
    assert told.succeeded is False
    assert "no, the gain is within noise" in told.sentence


def test_a_longer_start_is_paid_back_by_the_gain():
    pair = served(even(4.0), 5.0), served(even(3.0), 5.0)
    told = judged(pair, starts=(starting(10.0), starting(70.0)))
    # 60 s at 2,500 tokens/s, gained back at 833 tokens/s.
    assert told.repaid_after_s == pytest.approx(180, rel=0.01)
    assert told.sentence.endswith("which the gain makes up for in 3 min of service.")
    assert judged(pair, starts=(starting(70.0), starting(10.0))).repaid_after_s == 0
    assert judged(pair[::-1], starts=(starting(10.0), starting(70.0))).repaid_after_s is None


def test_without_an_interval_it_is_not_known_whether_it_has_succeeded():
    pair = served(even(4.0, 2), 5.0), served(even(3.0, 2), 5.0)
    told = judged(pair)
    assert told.gain_ci95 is None
    assert told.gain_tokens_per_s > 0
    assert told.succeeded is None
    assert "not identifiable, because without an interval nothing tells" in told.sentence
    assert "what the base and the candidate served after start-up is too short" in told.sentence
    assert "produces 3,333 tokens/s against 2,500 tokens/s with" in told.sentence
    found = compared(even(4.0, 2), even(3.0, 2), Slo(5.0)).objectives
    assert "noise: the base is too short (2 timed steps) to be cut into" in found.sentence


def test_a_loss_in_one_objective_is_known_without_the_other():
    lost = served(even(3.0), 5.0), served(even(4.0), 5.0)
    few = requested([*even(4.0), *asked(2, lambda i: 50)], 100.0)
    told = judge(lost, (few, few), (START, START), 5.0, 100.0)
    assert told.succeeded is False
    assert " is included: no. Within" in told.sentence


def test_a_candidate_without_graphs_is_no_graph_mode():
    graphs, off = chapter_one(300)[::-1]
    told = compared(graphs, off, Slo(5.5)).objectives.sentence
    assert told.startswith("The change has succeeded only if it improves the service after its")
    assert compared(off, graphs, Slo(5.5)).objectives.sentence.startswith("A graph mode has")


def test_requests_of_which_none_was_in_time_are_no_goodput():
    none = [
        event("request", 10.0 * i, dur_ns=500 * MS, tokens_in=5, tokens_out=0) for i in range(400)
    ]
    met = requested([*even(4.0), *asked(400, lambda i: 50)], 100.0)
    missed = requested([*even(4.0), *none], 100.0)
    told = judge((None, None), (met, missed), (START, START), None, 100.0)
    assert told.succeeded is False
    assert " is included: no. The first token came within 100 ms for 0 % of" in told.sentence
    assert told.first_token.candidate.tokens_per_s == 0
    silent = [{**row, "tokens_out": None} for row in asked(400, lambda i: 50)]
    unknown = requested([*even(4.0), *silent], 100.0)
    told = judge((None, None), (met, unknown), (START, START), None, 100.0)
    assert told.succeeded is None
    assert "because no token of the requests of the candidate is on record" in told.sentence


def test_steps_without_times_are_named():
    rows = [{**row, "dur_ns": None} for row in even(4.0, 60)]
    told = compared(even(4.0, 60), rows, Slo(5.0)).objectives.sentence
    assert "because the steps of the candidate do not tell their times" in told


def test_dropped_rows_are_named_where_requests_are_missing():
    lost = event("mark", 1.0, kind="dropped", weight=400)
    asking = [*even(4.0, 60), *asked(40, lambda i: 50)]
    found = compared(asking, [*even(4.0, 60), lost], Slo(ttft_ms=100.0))
    (told,) = [one for one in found.not_identifiable if "first token" in one]
    assert "no request of the candidate is on record, and 400 rows were dropped while" in told


def test_the_first_token_is_not_in_a_trace():
    found = compared(*chapter_one(60), Slo(ttft_ms=200.0))
    assert found.objectives.slo_ttft_ms == 200.0
    assert found.objectives.succeeded is None
    told = found.objectives.sentence
    assert "no request of the base and no request of the candidate is on record, and no" in told
    assert "objective between tokens was given (--slo-itl-ms)" in told
    (told,) = [one for one in found.not_identifiable if "first token" in one]
    assert "vllm:time_to_first_token_seconds" in told


def test_different_traffic_is_said():
    small = steps((8, 8, 16, 16, 32), 300, replayed)
    large = steps((8, 16, 32, 32, 32), 300, replayed)
    told = "but the two served different traffic"
    assert told in compared(small, large, Slo(8.0)).objectives.sentence
    # One bucket for all: a step of half the requests takes as long.
    many, few = ((20, 24, 30), (10, 12, 15))
    halved = [steps(sizes, 300, lambda size: replayed(size, (32,))) for sizes in (many, few)]
    assert told in compared(*halved, Slo(8.0)).objectives.sentence
    same = steps(SIZES, 300, replayed)
    assert told not in compared(same, same, Slo(8.0)).objectives.sentence
