"""What a profiler trace of 310 MB costs: CPU seconds and peak memory, each in a process of its own.

The trace is a real one of ``../shared/traces`` repeated end to end, with its times, correlation ids
and flow ids shifted, in the layout of Kineto's own writer and on one line. Beside it stand
``json.load`` of the same file and, where it is installed, HolisticTraceAnalysis.

    python benchmarks/kineto.py [--trace TRACE.json.gz] [--megabytes 310] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

TRACE = Path(__file__).parents[2] / "shared" / "traces" / "vllm_decode_full.json.gz"
MEGABYTES = 310
REPEATS = 3
PERIOD_NS = 100_000_000

_LOAD = "import json, sys; json.load(open(sys.argv[1]))"
_IMPORT = """
import sys
from graphdiag.importers import kineto
from graphdiag.importers.source import Source
for batch in kineto.read([Source(sys.argv[1])]):
    pass
"""
_HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
TraceAnalysis(trace_files={0: sys.argv[1]}).get_idle_time_breakdown(visualize=False)
"""
# A process's peak memory counts its parent's at the fork, so a small one stands between.
_WATCH = """
import json, os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(json.dumps([status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""


def rows(trace: Path = TRACE, megabytes: int = MEGABYTES, keep: Path | None = None) -> list[Row]:
    """Measure; ``keep`` is a folder for the built files. Nothing where ``trace`` is missing."""
    if not trace.exists():
        print(f"{trace} is missing: no Kineto benchmark", file=sys.stderr)
        return []
    found = []
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for layout, pretty in (("Kineto's layout", True), ("one line", False)):
            kind = "kineto" if pretty else "line"
            path = folder / f"{trace.name.split('.')[0]}-{megabytes}-{kind}.json"
            if not path.exists():
                build(trace, path, megabytes * 1_000_000, pretty)
            what = f"profiler trace of {path.stat().st_size / 1e6:.0f} MB, {layout}"
            yardstick = _yardstick(path)
            command = [sys.executable, "-m", "graphdiag", "report", str(path), "--json"]
            seconds, peak = _measured(command)
            found.append(Row(f"{what}: report --json", seconds, "CPU s", "< 1.5", yardstick))
            found.append(Row(f"{what}: peak memory", peak, "MB", "< 250", yardstick))
            seconds, peak = _measured([sys.executable, "-c", _IMPORT, str(path)])
            found.append(Row(f"{what}: import alone", seconds, "CPU s", "", f"{peak:.0f} MB"))
    return found


def build(trace: Path, path: Path, size: int, pretty: bool) -> None:
    """Write ``trace`` again and again into one trace of about ``size`` bytes."""
    with gzip.open(trace) as file:
        keys = json.loads(file.read(), parse_float=_Number)
    events = keys.pop("traceEvents")
    fixed, moving = _template(events, pretty)
    ids = 1 + max(value for kind, value in moving if kind == _ID)
    header = json.dumps(keys, indent=2 if pretty else None)[:-1].rstrip()
    written = 0
    with path.with_suffix(".tmp").open("w", buffering=1 << 20) as file:
        written += file.write(f'{header}, "traceEvents": [' + ("\n" if pretty else ""))
        copy = 0
        while written < size:
            if copy:
                written += file.write(",\n" if pretty else ", ")
            written += file.write("".join(_copy(fixed, moving, copy, ids)))
            copy += 1
        file.write("\n  ]\n}\n" if pretty else "]}")
    path.with_suffix(".tmp").rename(path)


class _Number(str):
    """A decimal fraction as it stands in the file: what a float may not be able to hold."""


_ID, _WHOLE, _FRACTION = range(3)
"""What moves from copy to copy: an id, and a time in whole or in fractional microseconds."""

Moving = list[tuple[int, int]]


def _template(events: list[Any], pretty: bool) -> tuple[list[str], Moving]:
    """Return the events' text around what moves, and that: its kind, and its ns or id."""
    moving: Moving = []

    def mark(holder: dict[str, Any], key: str) -> None:
        if key in holder:
            value = holder[key]
            kind = _ID if key != "ts" else _WHOLE if isinstance(value, int) else _FRACTION
            moving.append((kind, int(value) if kind == _ID else _ns(value)))
            holder[key] = "@@"

    texts = []
    for event in events:
        if event.get("cat") == "ac2g":
            mark(event, "id")
        mark(event, "ts")
        if isinstance(event.get("args"), dict):
            mark(event["args"], "correlation")
        texts.append(_kineto(event) if pretty else _line(event))
    # Within an event the order of the marks is that of its keys: id, ts, args.
    return re.split('"@@"', (",\n" if pretty else ", ").join(texts)), moving


def _copy(fixed: list[str], moving: Moving, copy: int, ids: int) -> Iterator[str]:
    for text, (kind, value) in zip(fixed, moving, strict=False):
        yield text
        if kind == _ID:
            yield str(value + copy * ids)
        else:
            microseconds, rest = divmod(value + copy * PERIOD_NS, 1000)
            yield str(microseconds) if kind == _WHOLE else f"{microseconds}.{rest:03}"
    yield fixed[-1]


def _ns(microseconds: int | str) -> int:
    whole, _, part = str(microseconds).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0")[:3])


def _line(value: Any) -> str:
    return re.sub(r'"@=([^"]*)"', r"\1", json.dumps(_unquoted(value)))


def _unquoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unquoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unquoted(each) for each in value]
    return f"@={value}" if isinstance(value, _Number) else value


def _kineto(event: dict[str, Any]) -> str:
    """Return an event as Kineto lays it out: keys, times and args on lines of their own."""
    times = {key: event[key] for key in ("ts", "dur") if key in event}
    rest = {key: event[key] for key in event if key not in ("ts", "dur", "args")}
    lines = [_line(each)[1:-1] for each in (rest, times) if each]
    if "args" in event:
        lines.append('"args": {\n      ' + _line(event["args"])[1:-1] + "\n    }")
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def _measured(command: list[str], repeats: int = REPEATS) -> tuple[float, float]:
    """CPU seconds (median) and peak MB (most) of a command in a process of its own."""
    runs = []
    for _ in range(repeats):
        watched = [sys.executable, "-c", _WATCH, *command]
        output = subprocess.run(watched, check=True, capture_output=True, text=True).stdout
        status, seconds, peak = json.loads(output.splitlines()[-1])
        if status:
            raise RuntimeError(f"{' '.join(command[:4])} failed with status {status}")
        runs.append((seconds, peak))
    return median(seconds for seconds, _ in runs), max(peak for _, peak in runs)


def _yardstick(path: Path) -> str:
    seconds, peak = _measured([sys.executable, "-c", _LOAD, str(path)], repeats=1)
    text = f"json.load {seconds:.1f} s, {peak:,.0f} MB"
    if find_spec("hta") is None:
        return text + "; HolisticTraceAnalysis is not installed"
    try:
        seconds, peak = _measured([sys.executable, "-c", _HTA, str(path)], repeats=1)
    except RuntimeError:
        return text + "; HolisticTraceAnalysis fails on it"
    return text + f"; HolisticTraceAnalysis {seconds:.1f} s, {peak:,.0f} MB"


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES)
    parser.add_argument("--keep", type=Path, help="folder to keep the built files in")
    options = parser.parse_args()
    for row in rows(options.trace, options.megabytes, options.keep):
        print(f"{row.what}: {row.figure:.3g} {row.unit} (reach {row.reach}; {row.yardstick})")


if __name__ == "__main__":
    main()
