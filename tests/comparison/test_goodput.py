"""Goodput: tokens a second within the objective, and whether the candidate has succeeded."""

import pytest

from graphdiag.comparison.answer import StartUp
from graphdiag.comparison.compare import Slo
from graphdiag.comparison.goodput import judge, measure_served
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


def even(ms, number=1000, tokens=10, **columns):
    return steps((10,), number, lambda size: {"ms": ms, "tokens_out": tokens, **columns})


def test_a_token_counts_where_its_step_took_no_longer():
    rows = steps((4, 8), 1000, lambda size: {"ms": float(size)})
    found = served(rows, 4.0).goodput()
    assert found.tokens_per_s == pytest.approx(500 * 4 / 6.0)
    assert found.share == pytest.approx(1 / 3)
    assert found.steady_share == found.share
    assert served(rows, 3.9).goodput().tokens_per_s == 0
    assert served(rows, 8.0).goodput().share == 1


def test_a_row_of_several_steps_is_held_against_its_mean():
    rows = even(8.0, weight=4)
    assert served(rows, 2.0).goodput().share == 1
    assert served(rows, 1.9).goodput().share == 0


def test_start_up_is_included_and_left_out():
    late = [event("capture", 990.0, artifact="g", dur_ns=10 * MS)]
    slow = steps((10,), 20, lambda size: {"ms": 50.0})
    found = served([*late, *slow, *steps((10,), 1000, replay10, 1000.0)], 5.0).goodput()
    assert found.tokens_per_s == pytest.approx(10_000 / (1 + 1000 * 0.004))
    assert found.steady_tokens_per_s == pytest.approx(10_000 / 4, rel=0.01)
    assert found.share == pytest.approx(1000 / 1020)
    assert found.steady_share == 1


def replay10(size):
    return {"ms": 4.0, "bucket": 16}


def test_ranks_of_one_engine_produce_the_same_tokens():
    one = even(4.0)
    both = [*one, *({**row, "rank": 1, "pid": 2} for row in one)]
    assert served(both, 5.0).goodput() == served(one, 5.0).goodput()
    parallel = configured(both, data_parallel=2)
    assert served(parallel, 5.0).goodput().tokens_per_s == pytest.approx(5000)


def test_without_tokens_or_times_nothing_is_known():
    for rows in (even(4.0, tokens=None), even(4.0)[:0], [{**r, "dur_ns": None} for r in even(4.0)]):
        found = served(rows, 5.0).goodput()
        assert found.tokens_per_s is None
        assert found.share is None


def test_it_has_succeeded_only_beyond_noise():
    slow, fast = served(even(4.0), 5.0), served(even(3.0), 5.0)
    told = judge((slow, fast), (START, START), 5.0, None)
    assert told.succeeded
    assert told.gain_tokens_per_s == pytest.approx(2500 / 3, rel=0.01)
    assert told.gain_ci95[0] > 0
    assert ": yes. Within the objective the candidate produces 3,333 tokens/s" in told.sentence
    told = judge((fast, slow), (START, START), 5.0, None)
    assert told.succeeded is False
    assert " is included: no. Within" in told.sentence
    told = judge((slow, slow), (START, START), 5.0, None)
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
    told = judge((served(idle, 9.0), served(spread, 9.0)), (START, START), 9.0, None)
    assert told.gain_tokens_per_s > 0
    assert told.succeeded is False
    assert "no, the gain is within noise" in told.sentence


def test_a_longer_start_is_paid_back_by_the_gain():
    pair = served(even(4.0), 5.0), served(even(3.0), 5.0)
    told = judge(pair, (starting(10.0), starting(70.0)), 5.0, None)
    # 60 s at 2,500 tokens/s, gained back at 833 tokens/s.
    assert told.repaid_after_s == pytest.approx(180, rel=0.01)
    assert told.sentence.endswith("which the gain makes up for in 3 min of service.")
    assert judge(pair, (starting(70.0), starting(10.0)), 5.0, None).repaid_after_s == 0
    assert judge(pair[::-1], (starting(10.0), starting(70.0)), 5.0, None).repaid_after_s is None


def test_too_few_moments_give_no_interval():
    pair = served(even(4.0, 2), 5.0), served(even(3.0, 2), 5.0)
    told = judge(pair, (START, START), 5.0, None)
    assert told.gain_ci95 is None
    assert told.succeeded


def test_the_first_token_is_not_in_a_trace():
    found = compared(*chapter_one(60), Slo(ttft_ms=200.0))
    assert found.objectives.slo_ttft_ms == 200.0
    assert found.objectives.succeeded is None
    assert "no objective between tokens was given (--slo-itl-ms)" in found.objectives.sentence
    (told,) = [one for one in found.not_identifiable if "first token" in one]
    assert "vllm:time_to_first_token_seconds" in told


def test_different_traffic_is_said():
    small = steps((8, 8, 16, 16, 32), 300, replayed)
    large = steps((8, 16, 32, 32, 32), 300, replayed)
    told = "but the two served different traffic"
    assert told in compared(small, large, Slo(8.0)).objectives.sentence
    same = steps(SIZES, 300, replayed)
    assert told not in compared(same, same, Slo(8.0)).objectives.sentence
