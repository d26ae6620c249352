import json

from tests.commands.conftest import Run
from tests.conftest import ROOT


def test_a_window_is_a_stretch_of_the_same_trace(run: Run) -> None:
    practice = str(ROOT / "sample_traces" / "practice.parquet")
    whole, part = (
        json.loads(run("report", practice, "--json", *more)[1])
        for more in ((), ("--window", "10..20.5"))
    )
    assert part["steps"] < whole["steps"] / 3
    assert part["metrics"]["capture_count"] == 0
    assert part["metrics"]["graph_bytes"] == whole["metrics"]["graph_bytes"]
    assert part["window"]["start"].startswith("2026-01-01T00:00:10.0")
    # Its run event is of another day than its simulated steps, and stays all the same.
    assert part["engine"] == whole["engine"]
    assert part["engine"]["simulated"]
    assert part["cases"][0]["ci95"] is not None
    assert "from 2026-01-01T00:00:10Z and before 2026-01-01T00:00:20.5Z" in part["notes"][-1]
    code, out, err = run("report", practice, "--window", "1000..2000")
    assert (code, out) == (2, "")
    assert "no step began from 2026-01-01T00:16:40Z" in err
