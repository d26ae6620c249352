"""What a workload asks of the engine: sizes and shares, arrivals, and files with bad rows."""

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from graphdiag.errors import GraphdiagError, SourceError
from graphdiag.experiment.arrivals import read_arrivals
from graphdiag.experiment.plan import EngineSize
from graphdiag.experiment.workloads import (
    LOT_STEPS,
    LOTS,
    PRACTICE,
    REQUESTS,
    Wanted,
    make_workload,
)

SIZE = EngineSize()
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def decode_steps(workload, size=SIZE):
    """Play the workload on an ideal engine: the decode steps of each batch size."""
    lots = [(step, list(each)) for step, each in groupby(workload.requests, lambda r: r.step)]
    found, now = Counter(), 0
    for step, lot in lots:
        assert step == now, "a lot begins when the one before has ended"
        assert sum(r.prompt_tokens for r in lot) <= size.token_budget  # one step of prefill
        (length,) = {r.output_tokens for r in lot}
        found[len(lot)] += length - 1  # the prefill gives the first token
        now += 1 + length - 1
    return found


def test_the_practice_has_its_shares_of_decode_steps_exactly():
    workload = make_workload("practice")
    found = decode_steps(workload)
    total = sum(found.values())
    assert total == LOTS * LOT_STEPS
    for first, last, percent in PRACTICE:
        steps = [found[size] for size in range(first, last + 1)]
        assert sum(steps) * 100 == percent * total
        assert max(steps) - min(steps) <= LOT_STEPS  # spread evenly, to a lot
    assert workload.has_fixed_batches
    assert f"{LOTS} lots of {LOT_STEPS} decode steps" in workload.sentence


def test_a_sweep_has_every_size_alike():
    found = decode_steps(make_workload("sweep:8"))
    assert set(found) == set(range(1, 9))
    assert len(set(found.values())) == 1


def test_a_lot_is_prefilled_in_one_step_within_a_small_token_budget():
    size = EngineSize(token_budget=32)
    assert decode_steps(make_workload("practice", Wanted(size)), size)[32] > 0


@pytest.mark.parametrize("told", ["practice", "sweep", "poisson:50", "bursts", "bursts:5"])
def test_a_seed_gives_the_same_again_and_another_other_requests(told):
    one, again, other = (make_workload(told, Wanted(seed=seed)) for seed in (1, 1, 2))
    assert one == again
    assert one.requests != other.requests
    assert all(r.prompt_tokens + r.output_tokens <= SIZE.max_context for r in one.requests)
    assert [r.at for r in one.requests] == sorted(r.at for r in one.requests)


def test_poisson_arrivals_come_at_their_rate():
    requests = make_workload("poisson:50", Wanted(number=2000)).requests
    assert len(requests) == 2000
    assert requests[0].at == 0
    assert 2000 / requests[-1].at == pytest.approx(50, rel=0.1)
    assert all(r.step is None for r in requests)


def test_bursts_are_bursts():
    requests = make_workload("bursts").requests
    seconds = Counter(int(r.at * 10) for r in requests)
    assert max(seconds.values()) >= 40
    assert sorted(seconds.values())[len(seconds) // 2] < 10


def test_bursts_alone_make_a_workload_too():
    requests = make_workload("bursts:1e-9").requests
    assert len(requests) == REQUESTS
    assert requests[-1].at < 60


def test_azure_rows_are_scaled_to_the_context_and_sped_up(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text(
        f"{HEADER}2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,2000,44\n"
    )
    workload = make_workload(f"azure:{file}", Wanted(speed=4))
    first, second = workload.requests
    assert (first.at, second.at) == (0.0, 1.0)
    assert second.prompt_tokens + second.output_tokens <= 512
    assert second.prompt_tokens == pytest.approx(2000 * 511 / 2044, abs=1)
    assert second.output_tokens == 11
    assert "4 times as fast, their tokens divided by 4 to fit" in workload.sentence


def test_the_public_trace_is_read(shared: Path):
    found = read_arrivals(str(shared / "traffic" / "AzureLLMInferenceTrace_conv.csv"))
    assert len(found) == 19_366
    assert (found[0].context, found[0].generated, found[0].at) == (374, 44, 0.0)
    assert found[1].at == pytest.approx(4.314579)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no request"),
        (HEADER, "holds no request"),
        ("a,b,c\n1,2,3\n", "line 1: the header has no column TIMESTAMP"),
        (f"{HEADER}2023-11-16 18:15:46,374\n", "line 2: has 2 values"),
        (f"{HEADER}1,2,3\n\n2,x,3\n", "line 4: ContextTokens is 'x'"),
        (f"{HEADER}1,2,-3\n", "line 2: GeneratedTokens is '-3'"),
        (f"{HEADER}1,0,3\n", "line 2: ContextTokens is '0'"),
        (f"{HEADER}noon,2,3\n", "line 2: TIMESTAMP is 'noon'"),
        (f"{HEADER}2023-13-16 18:15:46,2,3\n", "line 2: TIMESTAMP is '2023-13-16"),
        (b"\xff\xfe\x00", "is no text"),
        ('"', "is no CSV"),
    ],
)
def test_a_bad_file_gets_a_sentence_with_its_line(tmp_path: Path, text, told):
    file = tmp_path / "rows.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SourceError, match=told) as error:
        make_workload(f"azure:{file}")
    assert str(error.value).startswith(str(file))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "told",
    [
        "",
        "nosuch",
        "practice:3",
        "sweep:x",
        "sweep:0",
        "sweep:33",
        "poisson",
        "poisson:",
        "azure",
        "poisson:nan",
        "poisson:-1",
        "bursts:x",
        "azure:",
        "poisson:1e-9",
    ],
)
def test_a_workload_that_is_none_gets_a_sentence(told):
    with pytest.raises(GraphdiagError, match=r"^--workload .*\.$"):
        make_workload(told)


def test_a_file_that_is_not_there_gets_a_sentence(tmp_path: Path):
    with pytest.raises(SourceError, match="no such file"):
        make_workload(f"azure:{tmp_path / 'gone.csv'}")


def test_an_engine_too_small_for_the_practice_is_refused():
    with pytest.raises(GraphdiagError, match="give --max-requests 32"):
        make_workload("practice", Wanted(EngineSize(max_requests=16)))
