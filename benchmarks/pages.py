"""The page of ``graphdiag report --html`` of 10⁷ steps: time, size and memory of the process.

The yardstick is the same command without ``--html``: what the page adds is drawn from the summary.
The page of a hundredth of the steps shows that its size does not grow with the trace.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

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
    """Print the rows; with a trace, be the process that is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page too")
    parser.add_argument("trace", nargs="?", help="print one measurement of this trace as JSON")
    arguments = parser.parse_args()
    if arguments.trace:
        print(json.dumps(_measure(arguments.trace, page=arguments.page)))
        return
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit}, to reach {row.reach}; {row.yardstick}")


def _in_a_process(trace: str, *, page: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, *(["--page"] if page else []), trace]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _measure(trace: str, *, page: bool) -> dict[str, float]:
    """Run the command as a person would, its interpreter's start left out."""
    started, spent = time.perf_counter(), time.process_time()
    from graphdiag import cli

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.html"
        text = str(Path(folder) / "out.txt")
        code = cli.run(["report", trace, "-o", text, *(["--html", str(target)] if page else [])])
        if code:
            raise SystemExit(f"graphdiag report ended with {code}")
        size = target.stat().st_size if page else 0
    return {
        "wall": time.perf_counter() - started,
        "cpu": time.process_time() - spent,
        "mb": size / 1e6,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
