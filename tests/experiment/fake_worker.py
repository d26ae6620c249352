"""Stands in for the bundled engine: serves a plan's lots by formulas, and records them.

``python -m fake_worker PLAN RESULT``. Faults of its own: ``crash-MODE`` ends with a traceback,
``hang-MODE`` records half and waits to be interrupted, ``silent-MODE`` hangs with nothing recorded,
``other-tokens`` samples others in graphs mode.
"""

import json
import os
import random
import sys
import time
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from graphdiag.experiment.plan import RunPlan, RunResult
from graphdiag_collectors.schema import arrow_schema

START_S = {"eager": 1.0, "compiled": 21.0, "graphs": 41.0}
BASE_MS = {"eager": 2.0, "compiled": 1.2, "graphs": 0.8}
ROW_MS = 0.05


def main() -> None:
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RunPlan)
    faults, mode = set(plan.faults), plan.mode
    if f"crash-{mode}" in faults:
        raise RuntimeError("no kernel for this device")
    if f"silent-{mode}" in faults:
        ready()
        time.sleep(60)
    # The cache tells a cold start from a warm one, as the real one's does.
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    cold = not cache.exists()
    cache.mkdir(parents=True, exist_ok=True)
    start_s = START_S[mode] if cold else 1.0 + START_S[mode] / 20
    rows, tokens = list(served(plan)), 0
    if f"hang-{mode}" in faults:
        rows = rows[: len(rows) // 2]
    tokens = sum(row.get("tokens_out", 0) for row in rows)
    folder = Path(plan.trace)
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=arrow_schema())
    pq.write_table(table, folder / f"part-{os.getpid()}-0.parquet")
    if f"hang-{mode}" in faults:
        ready()
        time.sleep(60)
    digest = "other" if "other-tokens" in faults and mode == "graphs" else "same"
    result = RunResult(
        mode=mode,
        ready_s=start_s,
        first_step_s=start_s + 0.01,
        ended_s=start_s + 5,
        prepare_ms=0.2,
        graph_bytes=None,
        steps=len(rows) - 1,
        tokens_out=tokens,
        tokens_digest=digest,
        versions={"torch": "2.0"},
        not_measured=("GPU gaps: there is no GPU.",),
    )
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(result))


def ready() -> None:
    """Say to the test that it may interrupt."""
    Path("hanging").touch()


def served(plan: RunPlan):
    seeded = random.Random(f"{plan.mode}{plan.identity['experiment_round']}")
    graphs = plan.mode == "graphs"
    config = {
        "engine": "graphdiag-bundled",
        "capture_sizes": list(plan.buckets) if graphs else [],
        "graphs_off": ["prefill"] if graphs else ["decode", "prefill"],
        "max_num_seqs": plan.size.max_requests,
        **plan.identity,
    }
    number = plan.identity["experiment_round"]
    common = {"run": f"{plan.mode}-{number}", "rank": 0, "pid": os.getpid(), "weight": 1}
    now = 1_700_000_000_000_000_000 + int(number) * 10**10  # the same in every test run
    yield {**common, "event": "run", "t_ns": now, "config": json.dumps(config)}
    for _, lot in groupby(plan.requests, lambda request: request.step):
        lot = list(lot)
        for index in range(lot[0].output_tokens):
            size = len(lot)
            phase = "decode" if index else "prefill"
            bucket = None
            if graphs and index:
                bucket = next((b for b in plan.buckets if b >= size), None)
            rows = bucket or size * (1 if index else lot[0].prompt_tokens)
            ms = (BASE_MS[plan.mode] + ROW_MS * rows) * (1 + seeded.gauss(0, 0.02))
            off = "fallback" if graphs and index else "eager"
            outcome = off if bucket is None else "exact" if bucket == size else "padded"
            yield {
                **common,
                "event": "step",
                "t_ns": now,
                "dur_ns": round(ms * 1e6),
                "runner": "target",
                "phase": phase,
                "axis": "requests",
                "requested": size,
                "bucket": bucket,
                "num_reqs": size,
                "outcome": outcome,
                "mode": "eager" if bucket is None else "compiled",
                "artifact": None if bucket is None else f"decode/{bucket}",
                "tokens_out": size,
            }
            now += round(ms * 1e6)


if __name__ == "__main__":
    main()
