"""How long a person waits before anything happens: ``graphdiag --help``, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from _common import Row


def _wall_ms(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - start) * 1e3


def rows() -> list[Row]:
    """Measure the start-up."""
    bare = median(_wall_ms([sys.executable, "-c", "pass"]) for _ in range(11))
    helped = median(_wall_ms([sys.executable, "-m", "graphdiag", "--help"]) for _ in range(11))
    yardstick = f"python -c pass: {bare:.0f} ms"
    return [Row("graphdiag --help, wall", helped, "ms", "< 150", yardstick)]


if __name__ == "__main__":
    for row in rows():
        print(row)
