import gzip
import json

from tests.commands.conftest import Run
from tests.conftest import ROOT

PRACTICE = str(ROOT / "sample_traces" / "practice.parquet")
PROFILE = {
    "schemaVersion": 1,
    "baseTimeNanoseconds": 1_000_000_000_000_000_000,
    "traceEvents": [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "step[DECODE bs=9]",
            "pid": 1,
            "tid": 1,
            "ts": 10.0,
            "dur": 900.0,
        }
    ],
}


def test_a_file_that_is_whole_or_not_there(run: Run, tmp_path) -> None:
    target = tmp_path / "out.json.gz"
    code, out, err = run("export", PRACTICE, "--perfetto", str(target))
    assert (code, err) == (0, "")
    assert "ui.perfetto.dev" in out
    told = json.loads(gzip.decompress(target.read_bytes()))
    assert sum(one["ph"] == "X" for one in told["traceEvents"]) == 8005
    assert [path.name for path in tmp_path.iterdir()] == ["out.json.gz"]
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(b"PAR1 no trace")
    code, _, err = run("export", str(damaged), "--perfetto", str(tmp_path / "x.json"))
    assert code == 2
    assert err.count("\n") == 1
    assert not (tmp_path / "x.json").exists()


def test_a_pipe_gets_json_alone_and_a_window_what_began_in_it(run: Run) -> None:
    code, out, err = run("export", PRACTICE, "--perfetto", "-", "--window", "10..12")
    assert code == 0
    assert err.startswith("Wrote ")
    slices = [one for one in json.loads(out)["traceEvents"] if one["ph"] == "X"]
    begun = [one["ts"] / 1e6 for one in slices]
    assert 300 < len(slices) < 500
    assert 1.99 < max(begun) - min(begun) < 2


def test_beside_a_profile_its_base_is_taken(run: Run, tmp_path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps(PROFILE))
    code, out, _ = run("export", PRACTICE, "--perfetto", "-", "--beside", str(profile))
    assert code == 0
    assert json.loads(out)["baseTimeNanoseconds"] == 1_000_000_000_000_000_000
    code, _, err = run("export", PRACTICE, "--perfetto", "-", "--beside", PRACTICE)
    assert code == 2
    assert err.count("\n") == 1


def test_mistakes_get_one_sentence(run: Run, tmp_path) -> None:
    for arguments in (
        ("nothing.parquet", "--perfetto", "x.json"),
        (PRACTICE, "--perfetto", PRACTICE),
        (PRACTICE, "--perfetto", str(tmp_path)),
        (PRACTICE, "--perfetto", "-", "--window", "20..10"),
        (PRACTICE,),
    ):
        code, out, err = run("export", *arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
