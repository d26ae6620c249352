import pytest

from graphdiag.buckets.setting import of_summary, of_table
from graphdiag.buckets.tables import parse_size_table
from graphdiag.errors import GraphdiagError
from tests.buckets.making import LADDER, engine_rows, graphs_off_rows, practice, summary
from tests.build import event, step

SIZES = [*LADDER] * 20


def setting(rows, config=None, **more):
    return of_summary(summary(rows, **(config or {})), "made by hand", **more)


def refused(rows, config=None, **more):
    with pytest.raises(GraphdiagError, match=r"\.$") as error:
        setting(rows, config, **more)
    return str(error.value)


def test_a_table_covers_its_largest_size():
    problem = practice().problem()
    assert problem.keep == (32,)
    assert problem.candidates.tolist() == list(range(1, 33))
    assert practice().unit == "row"
    assert practice().times is None


def test_a_table_says_what_was_spread_and_what_is_not_known():
    found = practice()
    assert "Spread evenly over their sizes: 2-4, 5-8, 9-16, 17-32." in found.notes
    assert "a histogram has no step times" in found.not_identifiable[0]


def test_kept_and_forbidden_sizes_are_the_problems():
    problem = practice().problem(keep=(12, 100), forbid=(8, 32))
    assert problem.keep == (12, 33, 100)  # 32 must replay and is forbidden: 33 it is
    assert 8 not in problem.candidates
    assert {9, 12, 100} <= set(problem.candidates.tolist())


def test_a_size_kept_and_forbidden_or_illegal_is_refused():
    with pytest.raises(GraphdiagError, match="8 is both kept and forbidden; choose one"):
        practice().problem(keep=(8,), forbid=(8,))
    run = {"engine": "vllm", "axis": "tokens", "token_budget": 64}
    found = setting(engine_rows(SIZES, axis="tokens"), run)
    with pytest.raises(
        GraphdiagError, match="--keep 80: vLLM takes no such size here; 80 is above"
    ):
        found.problem(keep=(80,))


def test_sets_hold_what_replays_now_where_eager_has_no_price():
    found = setting(engine_rows([*SIZES, 9]))
    assert found.seen_replayed == 32
    assert found.must_replay == 32
    assert found.problem().keep == (32,)
    timed = setting(engine_rows([*SIZES, 9, *[40] * 20]))
    assert timed.must_replay == 32  # an eager step of 40 tells little of one of 32
    off = summary(graphs_off_rows([9, 32] * 100))
    timed = setting(engine_rows([*SIZES, 9]), baseline=off)
    assert timed.must_replay == 8
    assert timed.problem().keep == (8,)


def test_an_eager_row_counts_twice_only_where_one_may_be_eager():
    untimed = [{**row, "dur_ns": None} for row in engine_rows([*SIZES, 9])]
    assert not any("eager step is taken" in note for note in setting(untimed).notes)
    more = [*untimed, step(40, None, 9_000, reason="over_max")]
    assert "taken to cost 2 rows for each" in setting(more).notes[-1]


def test_graphs_that_were_off_are_planned_for_and_said():
    found = setting(graphs_off_rows([3, 9, 9, 20]), graphs_off=True)
    assert found.traffic.sizes.tolist() == [3, 9, 20]
    assert found.problem().keep == (20,)
    assert found.notes[-1].startswith("Graphs were off in this trace: its eager steps")
    assert len(setting(graphs_off_rows([3, 9])).traffic.sizes) == 0  # not unless asked for


def test_eager_prefill_is_not_planned_for_where_decode_replays():
    rows = [*engine_rows(SIZES), *graphs_off_rows([700] * 9, phase="prefill", axis="tokens")]
    assert setting(rows, graphs_off=True).traffic.sizes.tolist() == [*LADDER]


def test_an_unknown_engine_may_have_any_size_up_to_its_batch():
    run = {"engine": "mine", "max_num_seqs": 24, "axis": "requests"}
    found = setting(engine_rows(SIZES), run)
    assert found.engine is None
    assert found.rules.must_contain == (24,)
    assert found.rules.multiple_of == 1


def test_one_list_has_no_phase():
    rows, run = engine_rows(SIZES, axis="tokens"), {"engine": "vllm", "axis": "tokens"}
    said = "--phase decode: vLLM keeps one list for all phases; leave --phase out."
    assert refused(rows, run, phase="decode") == said
    table = parse_size_table("8,1\n", "t")
    with pytest.raises(GraphdiagError, match="vLLM keeps one list"):
        of_table(table, "t", engine="vllm", phase="prefill")
    assert of_table(table, "t", engine="sglang", phase="prefill").list_phase == "prefill"


def test_tokens_of_all_phases_are_not_one_of_two_lists():
    rows, run = engine_rows(SIZES, axis="tokens"), {"engine": "vllm", "axis": "tokens"}
    assert "give --phase decode or --phase prefill" in refused(rows, run, engine="sglang")
    assert setting(rows, run, engine="sglang", phase="decode").rules.phase == "decode"


def test_a_baseline_must_be_of_the_same_engine_and_axis():
    rows, run = engine_rows(SIZES), {"engine": "sglang", "engine_version": "0.5.23"}
    other = summary(graphs_off_rows([8] * 200), engine="vllm")
    assert "a trace of vllm, and the source is one of sglang" in refused(rows, run, baseline=other)
    tokens = summary(graphs_off_rows([8] * 200, axis="tokens"), engine="sglang")
    assert "no eager steps that count requests" in refused(rows, run, baseline=tokens)
    untimed = [{**row, "dur_ns": None} for row in graphs_off_rows([8] * 200)]
    assert "with their times" in refused(rows, run, baseline=summary(untimed, engine="sglang"))
    same = summary(graphs_off_rows([8] * 200), engine="sglang")
    assert setting(rows, run, baseline=same).times.saved_sizes.tolist() == [8]


def test_where_the_saving_was_measured_is_said():
    found = setting(engine_rows([*SIZES, *[40] * 20, *[60] * 20]))
    assert "Eager steps were timed from 40 to 60: at other sizes" in found.notes[-1]


def test_a_trap_leaves_out_what_it_made():
    rows = [*engine_rows(SIZES), *engine_rows([70] * 40)]
    config = event("run", config={"capture_sizes": [*LADDER]})
    found = setting([config, *rows], trapped_up_to=48)
    assert found.traffic.sizes.tolist() == [*LADDER]
    assert 48 in found.problem().keep
    assert found.traffic.over_time.shape[1] == 5
