"""The page of ``graphdiag report --html`` of 10⁷ steps: time, size and memory of the command.

The yardstick is the same command without ``--html``: what the page adds is drawn from the summary.
The page of a hundredth of the steps shows that its size does not grow with the trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

STEPS, FEWER_STEPS = 10_000_000, 100_000
REPEATS = 3


def rows() -> list[Row]:
    """Measure the command with its page and without, each in a process of its own, in turns."""
    from summary import trace_file  # which needs more memory than is measured here

    trace, small = str(trace_file(STEPS)), str(trace_file(FEWER_STEPS))
    drawn, plain = [], []
    for _ in range(REPEATS):
        drawn.append(_in_a_process(trace, page=True))
        plain.append(_in_a_process(trace, page=False))
    other = _in_a_process(small, page=True)

    def middle(runs: list[dict[str, float]], figure: str) -> float:
        return median(run[figure] for run in runs)

    without = f"without the page: {middle(plain, 'cpu'):.2f} s CPU, {middle(plain, 'wall'):.2f} s"
    return [
        Row("page of 10⁷ steps, wall clock", middle(drawn, "wall"), "s", "< 5 s", without),
        Row("page of 10⁷ steps, CPU time", middle(drawn, "cpu"), "s", "", without),
        Row(
            "page of 10⁷ steps, size",
            middle(drawn, "mb"),
            "MB",
            "< 5 MB",
            f"of 10⁵ steps: {other['mb']:.2f} MB",
        ),
        Row(
            "page of 10⁷ steps, peak memory",
            middle(drawn, "mib"),
            "MiB",
            "< 1024",
            f"without the page: {middle(plain, 'mib'):.0f} MiB",
        ),
    ]


def main() -> None:
    """Print the rows."""
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit}, to reach {row.reach}; {row.yardstick}")


def _in_a_process(trace: str, *, page: bool) -> dict[str, float]:
    """Run the command as a person would, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.html"
        command = [sys.executable, "-m", "graphdiag", "report", trace]
        command += ["-o", str(Path(folder) / "out.txt"), *(["--html", str(target)] if page else [])]
        started = time.perf_counter()
        process = subprocess.Popen(command)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"graphdiag report ended with {process.returncode}")
        return {
            "wall": wall,
            "cpu": used.ru_utime + used.ru_stime,
            "mb": target.stat().st_size / 1e6 if page else 0,
            "mib": used.ru_maxrss / 1024,
        }


if __name__ == "__main__":
    main()
