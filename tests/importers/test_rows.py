import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from graphdiag.importers.rows import RowBuilder, batch
from graphdiag_collectors.schema import arrow_schema


def test_columns_of_any_kind_become_a_batch() -> None:
    found = batch(
        {
            "event": ["step", None, "é✓"],
            "t_ns": np.arange(3),
            "rank": [None, 1, 2],
            "replays": np.ma.masked_equal(np.arange(3), 1),
            "fallback": np.array([True, False, True]),
            "padding_ratio": [0.5, 1, None],
            "size": pa.array([1, None, 3], pa.int64()),
        },
        3,
    )
    found.validate(full=True)
    assert found.schema.equals(arrow_schema(), check_metadata=True)
    told = {name: found[name].to_pylist() for name in found.schema.names}
    assert told.pop("event") == ["step", None, "é✓"]
    assert told.pop("t_ns") == [0, 1, 2]
    assert told.pop("rank") == [None, 1, 2]
    assert told.pop("replays") == [0, None, 2]
    assert told.pop("fallback") == [True, False, True]
    assert told.pop("padding_ratio") == [0.5, 1.0, None]
    assert told.pop("size") == [1, None, 3]
    assert set(map(tuple, told.values())) == {(None, None, None)}
    assert batch({"event": [], "t_ns": []}, 0).num_rows == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit int32"):
        batch({"rank": [1 << 40]}, 1)
    with pytest.raises(ValueError, match="does not fit int64"):
        batch({"t_ns": [1.5]}, 1)
    with pytest.raises(ValueError, match="holds 1 values, not 2"):
        batch({"t_ns": [1]}, 2)
    with pytest.raises(KeyError, match="no such column"):
        batch({"bucked": [1]}, 1)


def test_row_by_row() -> None:
    builder = RowBuilder()
    builder.append(event="step", t_ns=1)
    builder.append(event="run", config="{}")
    builder.append(event="step", dur_ns=4)
    assert len(builder) == 3
    told = builder.take().select(["event", "t_ns", "dur_ns", "config"]).to_pydict()
    assert told == {
        "event": ["step", "run", "step"],
        "t_ns": [1, None, None],
        "dur_ns": [None, None, 4],
        "config": [None, "{}", None],
    }
    assert builder.take().num_rows == 0
    with pytest.raises(KeyError, match="no such column"):
        builder.append(nonsense=1)


def test_pandas_is_not_imported() -> None:
    code = (
        "import sys; from graphdiag.importers.rows import batch; "
        "batch({'event': ['step'], 't_ns': [1], 'rank': [None]}, 1); "
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
