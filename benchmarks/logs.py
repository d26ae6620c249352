"""Server logs to rows: megabytes a CPU second for each kind of log, and memory on a long one.

Each measurement runs in a process of its own. The yardstick is the plain way, on the first part of
the same log: search each line with one regular expression, and append its time and its groups, the
numbers as numbers, to a list.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

MEGABYTES = 200
LONG_MEGABYTES = 1000
PLAIN_BYTES = 20_000_000
REPEATS = 3
CACHE = Path(tempfile.gettempdir()) / "graphdiag-benchmarks"
"""Where the logs are kept between runs."""

_SIZES = (1, 2, 4, 8, 16, 24, 32)
_START = datetime(2026, 5, 4)
_ARGUMENTS = (
    "[2026-05-04 00:00:00] server_args=ServerArgs(model_path='m', tp_size=1, "
    "disable_cuda_graph_padding=False, cuda_graph_config=CudaGraphConfig("
    f"decode=PhaseConfig(backend='full', bs={list(_SIZES)}), "
    "prefill=PhaseConfig(backend='disabled')))\n"
)
_PLAIN = re.compile(
    rb"Decode graph replay: worker=(draft|target) key_size=(\d+) \((bs|num_tokens)\) mode=(\w+) "
    rb"raw_bs=(\d+)|Decode batch(?:\.| \[\d+\],|,) ?#running-req: (\d+), (.*?)"
    rb"(cuda|cpu) graph: (True|False), gen throughput \(token/s\): ([\d.]+), #queue-req: (\d+)"
    rb"|Prefill batch(?:\.|,) ?#new-seq: (\d+), #new-token: (\d+), #cached-token: (\d+), (.*)"
    rb"|\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(-?\d+)\s*\|\s*(NONE|PIECEWISE|FULL)\s*\|\s*(\d+)\s*\|"
)

_TIME = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def rows() -> list[Row]:
    """Measure every kind of log, and the memory of a long one."""
    told = []
    for kind in _KINDS:
        path = log_file(kind, MEGABYTES)
        runs = [_in_a_process("graphdiag", path) for _ in range(REPEATS)]
        plain = _in_a_process("plain", path)["mb_per_cpu_s"]
        told.append(
            Row(
                f"{MEGABYTES} MB of {_KINDS[kind][0]}",
                median(run["mb_per_cpu_s"] for run in runs),
                "MB/CPU s",
                ">= 60",
                f"line by line in Python: {plain:.0f} MB/CPU s",
            )
        )
        told.append(
            Row(
                f"{MEGABYTES} MB of {_KINDS[kind][0]}, peak memory",
                median(run["peak_mb"] for run in runs),
                "MB",
                "flat",
            )
        )
    long = _in_a_process("graphdiag", log_file("keys", LONG_MEGABYTES))
    short = next(row.figure for row in told if row.unit == "MB")
    told.append(
        Row(
            f"{LONG_MEGABYTES} MB of {_KINDS['keys'][0]}, peak memory",
            long["peak_mb"],
            "MB",
            f"as {MEGABYTES} MB",
            f"{MEGABYTES} MB: {short:.0f} MB",
        )
    )
    return told


def main() -> None:
    """Print the rows; with arguments, be the process that measures one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=("graphdiag", "plain"))
    parser.add_argument("log", nargs="?")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(_measure(arguments.measure, Path(arguments.log))))
        return
    for row in rows():
        print(f"{row.what}: {row.figure:.3g} {row.unit} ({row.reach}) {row.yardstick}")


def log_file(kind: str, megabytes: int) -> Path:
    """Return a log of this kind and size; it is written once and kept."""
    path = CACHE / f"{kind}-{megabytes}MB.log"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        written = 0
        with unfinished.open("w") as file:
            for text in _KINDS[kind][1](random.Random(megabytes)):
                written += file.write(text)
                if written >= megabytes * 1_000_000:
                    break
        unfinished.replace(path)
    return path


def _in_a_process(reader: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", reader, str(path)]
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def _measure(reader: str, path: Path) -> dict[str, float]:
    size = path.stat().st_size
    if reader == "plain":
        size = min(size, PLAIN_BYTES)
    read = _read_plainly if reader == "plain" else _import(path)
    began = time.process_time()
    count = read(path)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"mb_per_cpu_s": size / 1e6 / seconds, "peak_mb": peak, "rows": count}


def _import(path: Path) -> Callable[[Path], int]:
    from graphdiag.importers.registry import recognise
    from graphdiag.importers.source import Source

    importer = recognise(Source(str(path)))
    return lambda log: sum(batch.num_rows for batch in importer.read([Source(str(log))]))


def _read_plainly(path: Path) -> int:
    with path.open("rb") as file:
        lines = file.read(PLAIN_BYTES).split(b"\n")
    found = []
    for line in lines:
        match = _PLAIN.search(line)
        if match is None:
            continue
        stamp = _TIME.search(line)
        when = datetime.fromisoformat((stamp[1] if stamp else b"2026-05-04").decode()).timestamp()
        groups = [group for group in match.groups() if group is not None]
        found.append((when, *(int(group) if group.isdigit() else group for group in groups)))
    return len(found)


def _stamp(seconds: float) -> str:
    return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


def _keys(rng: random.Random) -> Iterator[str]:
    yield _ARGUMENTS
    second = 0
    while True:
        head = f"[{_stamp(second)}] Decode graph replay: worker=target "
        second += 1
        lines = []
        for _ in range(120):
            raw = rng.randint(1, 32)
            key = next(size for size in _SIZES if size >= raw)
            lines.append(f"{head}key_size={key} (bs) mode=DECODE raw_bs={raw}\n")
        yield "".join(lines)


def _decodes(rng: random.Random) -> Iterator[str]:
    yield _ARGUMENTS
    second = 0
    while True:
        head = f"[{_stamp(second)} TP0] "
        second += 1
        running = rng.randint(1, 66)
        yield (
            f"{head}Decode batch, #running-req: {running}, #token: {rng.randint(1, 99_999)}, "
            f"token usage: {rng.random():.2f}, cuda graph: {running <= 32}, gen throughput "
            f"(token/s): {rng.random() * 3000:.2f}, #queue-req: {rng.randint(0, 9)}\n"
        )
        if second % 5 == 0:
            yield (
                f"{head}Prefill batch, #new-seq: 1, #new-token: {rng.randint(1, 4096)}, "
                f"#cached-token: 0, token usage: 0.04, #running-req: {running}, #queue-req: 0, "
                "cuda graph: False, input throughput (token/s): 1804.20\n"
            )


def _tables(rng: random.Random) -> Iterator[str]:
    second = 0
    rule = "|-----------------|---------------|--------------|--------------|-------|"
    while True:
        head = f"(APIServer pid=71) INFO {_stamp(second % 31_000_000)[5:]} [cuda_graph.py:123] "
        second += 10
        lines = [
            "**CUDAGraph Config Settings:**",
            "",
            "- Mode: FULL_AND_PIECEWISE",
            f"- Capture sizes: {list(_SIZES)}",
            "",
            "**CUDAGraph Stats:**",
            "",
            "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |",
            rule,
        ]
        for _ in range(8):
            asked = rng.randint(1, 32)
            bucket = next(size for size in _SIZES if size >= asked)
            lines.append(
                f"| {asked:<15} | {bucket:<13} | {bucket - asked:<12} | FULL         "
                f"| {rng.randint(1, 900):<5} |"
            )
        yield "".join(f"{head}{line}\n" for line in [*lines, ""])


def _requests(rng: random.Random) -> Iterator[str]:
    yield _ARGUMENTS
    count = 0
    while True:
        count += 1
        yield (
            f"[{_stamp(count // 50)}] INFO:     127.0.0.1:{rng.randint(30_000, 60_000)} - "
            '"POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        )


_KINDS: dict[str, tuple[str, Callable[[random.Random], Iterator[str]]]] = {
    "keys": ("SGLang replay keys", _keys),
    "decodes": ("SGLang decode and prefill lines", _decodes),
    "tables": ("vLLM tables", _tables),
    "requests": ("lines that do not matter", _requests),
}

if __name__ == "__main__":
    main()
