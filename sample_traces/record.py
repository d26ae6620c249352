"""Record the samples that a CPU can: ``python sample_traces/record.py --python TORCH_PYTHON``.

Each is a run of ``graphdiag experiment`` on the bundled engine, packed into one file, in which the
folder that the engine's code lay in is left out of the names of compiled frames. Batches are the
same again, times are this machine's.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from graphdiag_collectors.files import write_part
from graphdiag_collectors.pack import pack

_CODE = r"[^\s\"]*/(graphdiag/experiment/)"
_TOLD = ("key", "identity")
"""Columns that name the file of a compiled frame."""


SAMPLES = {
    "practice_cpu_eager": ("practice", "eager-1"),
    "practice_cpu_graphs": ("practice", "graphs-1"),
    "compile_in_measurement_cpu": ("no_warmup", "graphs-1"),
}
"""The experiment and the run that each sample is from."""
EXPERIMENTS = {
    "practice": (),
    # With this seed every bucket is asked for within the first lots.
    "no_warmup": ("--seed", "32", "--number", "100", "--modes", "graphs", "--fault", "no_warmup"),
}


def main() -> None:
    """Record all samples into the folder of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name, arguments in EXPERIMENTS.items():
            command = [sys.executable, "-m", "graphdiag", "experiment", "--rounds", "1", *arguments]
            command += ["--python", options.python, "--out", str(Path(scratch) / name)]
            subprocess.run(command, check=True)
        for name, (experiment, run) in SAMPLES.items():
            made = keep(
                Path(scratch) / experiment / f"{run}.parquet", options.out / f"{name}.parquet"
            )
            print(f"{made.name}: {made.stat().st_size / 1000:,.0f} kB")


def keep(trace: Path, target: Path) -> Path:
    """Pack ``trace`` into ``target``, without the folder its compiled code came from."""
    with tempfile.TemporaryDirectory() as scratch:
        packed = Path(scratch) / "packed.parquet"
        pack(trace, packed)
        table: pa.Table = pq.read_table(packed)
    for name in _TOLD:
        place = table.schema.get_field_index(name)
        shortened = pc.replace_substring_regex(table[name], _CODE, r"\1")
        table = table.set_column(place, table.schema.field(place), shortened)
    write_part(target, table.to_batches())
    return target


if __name__ == "__main__":
    main()
