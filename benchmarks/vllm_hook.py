"""What the vLLM collector costs: per step, and in throughput of the real engine on a CPU.

Needs the real vLLM: set ``GRAPHDIAG_VLLM_PYTHON`` to a Python that has it and pyarrow. The cost per
step is taken on the real dispatcher, the real ``_determine_batch_execution_and_padding`` and the
real objects of scheduler and output, called as the runner calls them, in a runner that does nothing
else: the whole hook is three wrapped methods and the row. Runs with and without alternate in bursts
of 2000 steps with a pause of 3 ms; a figure is the median over bursts of the difference of the
medians within a burst. The yardstick is what vLLM's own ``--cudagraph-metrics`` adds to the same
step in the same run: making a CUDAGraphStat and ``observe``. What else that option costs is named
apart: sending the object from the worker's process and from the engine core's, and counting the
objects for the table that is logged every ten seconds.

Throughput is that of the real engine, in ``_vllm_throughput.py``.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row

BURST = 2000
BURSTS = 60
PAUSE_S = 0.003
REACH = "< metrics"
VARIABLE = "GRAPHDIAG_VLLM_PYTHON"
ROOT = Path(__file__).parents[1]


def rows() -> list[Row]:
    python = os.environ.get(VARIABLE)
    if not python:
        print(f"vllm_hook: set {VARIABLE} to a Python that has vLLM", file=sys.stderr)
        return []
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "collectors"), VLLM_LOGGING_LEVEL="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        environment["GRAPHDIAG_TRACE"] = f"{folder}/trace.parquet"
        cost: dict[str, Any] = {}
        for script in (__file__, str(ROOT / "benchmarks" / "_vllm_throughput.py")):
            child = [python, script, "--inside", folder]
            done = subprocess.run(child, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            cost |= json.loads(done.stdout.splitlines()[-1])
    found = []
    for what in ("decode, graph hit", "decode, over the largest size", "mixed, piecewise"):
        metrics = f"{cost[f'{what}: metrics']:.2f} us (--cudagraph-metrics, same step)"
        found.append(Row(f"vLLM hook, {what}", cost[f"{what}: hook"], "us", REACH, metrics))
    shares = f"{cost['fetch']:.2f} us of it in that thread; {metrics}"
    found.append(Row("vLLM hook, result fetched by a thread", cost["deferred"], "us", "", shares))
    for what, name in (
        ("CUDAGraphStat + observe alone", "stat"),
        ("its pickle, worker to engine core (--tp > 1)", "pickle"),
        ("its msgpack, engine core to front end", "msgpack"),
        ("its share of the table every 10 s", "table"),
    ):
        found.append(Row(what, cost[name], "us", ""))
    steps = f"{cost['pairs']} pairs of {cost['block']} steps of {cost['step']:.2f} ms"
    steps += f", load {cost['load']}"
    for what in ("wall", "cpu"):
        loss, low, high = cost[what]
        spread = f"95 %: {low:+.2f} to {high:+.2f}, {steps}"
        found.append(Row(f"engine on a CPU: lost, {what} time", loss, "%", "< 0.5", spread))
    flushes = "in the cpu time above; two flushes a second, however many rows"
    found.append(Row("writer's thread, CPU time a step", cost["writer"], "us", "", flushes))
    return found


def _inside() -> None:
    """Measure in a Python that has vLLM, and print the figures in µs as JSON."""
    import numpy as np
    from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat
    from vllm.config import CompilationConfig, CUDAGraphMode
    from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.worker import gpu_model_runner

    from graphdiag_collectors import vllm_v1
    from graphdiag_collectors.vllm_state import State

    sizes = [1, 2, 4, 8, 16, 32]
    compilation = CompilationConfig(
        cudagraph_mode="FULL_AND_PIECEWISE",
        mode=3,
        cudagraph_capture_sizes=sizes,
        max_cudagraph_capture_size=32,
    )
    compilation.splitting_ops = list(compilation._attention_ops)
    compilation.compile_sizes = []
    real = vars(gpu_model_runner.GPUModelRunner)

    def config(metrics: bool) -> SimpleNamespace:
        return SimpleNamespace(
            compilation_config=compilation,
            num_speculative_tokens=0,
            speculative_config=None,
            lora_config=None,
            scheduler_config=SimpleNamespace(max_num_seqs=64, max_num_batched_tokens=8192),
            parallel_config=SimpleNamespace(data_parallel_size=1, pipeline_parallel_size=1, rank=0),
            observability_config=SimpleNamespace(cudagraph_metrics=metrics),
            model_config=SimpleNamespace(is_encoder_decoder=False, model="benchmark"),
        )

    def runner_class() -> type[Any]:
        class GPUModelRunner:
            uniform_decode_query_len = 1
            use_async_scheduling = False
            _is_uniform_decode = real["_is_uniform_decode"]
            _determine_batch_execution_and_padding = real["_determine_batch_execution_and_padding"]

            def __init__(self, metrics: bool) -> None:
                for index in range(150):  # as many as the real one; fewer are laid out apart
                    setattr(self, f"attribute_{index}", None)
                self.vllm_config = config(metrics)
                self.model_config = self.vllm_config.model_config
                self.parallel_config = self.vllm_config.parallel_config
                self.cudagraph_dispatcher = CudagraphDispatcher(self.vllm_config)
                mode = CUDAGraphMode.FULL_AND_PIECEWISE
                self.cudagraph_dispatcher.initialize_cudagraph_keys(mode, 1)
                self.input_batch = SimpleNamespace(lora_id_to_lora_request={})
                self.longest = 1
                self.lengths = np.ones(64, np.int32)
                self.result: Any = None
                self.output = ModelRunnerOutput([], {}, [[1]] * 12)

            def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
                self.result = self._determine_batch_execution_and_padding(
                    num_tokens=scheduler_output.total_num_scheduled_tokens,
                    num_reqs=len(scheduler_output.num_scheduled_tokens),
                    num_scheduled_tokens_np=self.lengths,
                    max_num_scheduled_tokens=self.longest,
                    use_cascade_attn=False,
                    num_encoder_reqs=0,
                    allow_microbatching=True,
                )

            def sample_tokens(self, grammar_output: Any) -> Any:
                return self.output

            def _dummy_run(self, num_tokens: int) -> None: ...

            def capture_model(self) -> int:
                return 0

        return GPUModelRunner

    def plan(lengths: list[int]) -> Any:
        ids = [f"cmpl-{index}" for index in range(len(lengths))]
        cached = CachedRequestData.make_empty()
        cached.req_ids = ids
        cached.num_computed_tokens = [500] * len(ids)
        cached.num_output_tokens = [0 if length > 1 else 9 for length in lengths]
        batch = SchedulerOutput.make_empty()
        batch.total_num_scheduled_tokens = sum(lengths)
        batch.num_scheduled_tokens = dict(zip(ids, lengths, strict=True))
        batch.scheduled_cached_reqs = cached
        return batch

    plain_class, hooked_class = runner_class(), runner_class()
    state = State()
    vllm_v1.hook_runner(state, SimpleNamespace(GPUModelRunner=hooked_class))  # type: ignore[arg-type]
    log = CUDAGraphLogging(CUDAGraphMode.FULL_AND_PIECEWISE, sizes)
    found: dict[str, float] = {}
    kinds = {
        "decode, graph hit": [1] * 12,
        "decode, over the largest size": [1] * 40,
        "mixed, piecewise": [1] * 11 + [17],
    }
    for what, lengths in kinds.items():
        batch = plan(lengths)
        plain, metrics = plain_class(False), plain_class(True)
        hooked = hooked_class(False)
        for runner in (plain, metrics, hooked):
            runner.longest = max(lengths)
            runner.output.sampled_token_ids = [[1]] * len(lengths)

        def step(runner: Any, batch: Any = batch) -> None:
            runner.execute_model(batch, None)
            runner.sample_tokens(None)

        def observed(runner: Any, batch: Any = batch) -> None:
            runner.execute_model(batch, None)
            log.observe(runner.result[4])
            runner.sample_tokens(None)

        tasks = (
            lambda r=plain: step(r),
            lambda r=hooked: step(r),
            lambda r=metrics: observed(r),
        )
        found[f"{what}: hook"], found[f"{what}: metrics"] = _added(tasks, log.reset)
    mode = CUDAGraphMode.FULL

    def stat() -> None:
        log.observe(
            CUDAGraphStat(
                num_unpadded_tokens=12,
                num_padded_tokens=16,
                num_paddings=4,
                runtime_mode=str(mode),
            )
        )

    (found["stat"],) = _added((lambda: None, stat), log.reset)
    log.stats = [CUDAGraphStat(i % 30 + 1, 32, 31 - i % 30, "FULL") for i in range(5000)]
    start = perf_counter_ns()
    log.generate_metric_table()
    found["table"] = (perf_counter_ns() - start) / 1e3 / len(log.stats)
    log.reset()
    found |= _sent(CUDAGraphStat(12, 16, 4, "FULL"))
    found |= _deferred(runner_class, plan([1] * 12))
    print(json.dumps(found))


def _sent(stat: Any) -> dict[str, float]:
    """Return the µs to bring ``stat`` from the worker to the engine core, and on to the front."""
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

    encoder, decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
    without = EngineCoreOutputs(scheduler_stats=SchedulerStats())
    with_stat = EngineCoreOutputs(scheduler_stats=SchedulerStats(cudagraph_stats=stat))
    tasks = (
        lambda: decoder.decode(encoder.encode(without)),
        lambda: decoder.decode(encoder.encode(with_stat)),
    )
    (msgpack,) = _added(tasks, lambda: None)
    (pickled,) = _added((lambda: None, lambda: pickle.loads(pickle.dumps(stat, -1))), lambda: None)
    return {"msgpack": msgpack, "pickle": pickled}


def _deferred(runner_class: Callable[[], type[Any]], batch: Any) -> dict[str, float]:
    """Return the µs the hook adds where results come from ``get_output``, and that call's share."""
    from graphdiag_collectors import vllm_v1
    from graphdiag_collectors.vllm_state import State

    def with_output() -> tuple[type[Any], type[Any]]:
        class Output:
            def __init__(self, output: Any) -> None:
                self.output = output

            def get_output(self) -> Any:
                return self.output

        runner = runner_class()
        runner.use_async_scheduling = True
        runner.sample_tokens = lambda self, grammar: Output(self.output)
        return runner, Output

    plain, _ = with_output()
    hooked, output = with_output()
    space = SimpleNamespace(GPUModelRunner=hooked, AsyncGPUModelRunnerOutput=output)
    vllm_v1.hook_runner(State(), space)  # type: ignore[arg-type]

    def step(runner: Any) -> None:
        runner.execute_model(batch, None)
        runner.sample_tokens(None).get_output()

    one, other = plain(False), hooked(False)
    (both,) = _added((lambda: step(one), lambda: step(other)), lambda: None)

    def filled(runner: Any) -> Any:
        runner.execute_model(batch, None)
        return runner.sample_tokens(None)

    spent: list[list[int]] = [[], []]
    for _ in range(BURSTS):
        for runner, times in zip((one, other), spent, strict=True):
            for _ in range(BURST // 10):
                waiting = [filled(runner) for _ in range(4)]
                start = perf_counter_ns()
                for result in waiting:
                    result.get_output()
                times.append((perf_counter_ns() - start) // 4)
    return {"deferred": both, "fetch": (median(spent[1]) - median(spent[0])) / 1e3}


def _added(tasks: tuple[Callable[[], Any], ...], between: Callable[[], None]) -> list[float]:
    """Return the µs that each task but the first takes more than it; they take turns in bursts.

    The median over bursts of the difference of the medians within a burst.
    """
    bursts: list[list[float]] = []
    for _ in range(BURSTS):
        medians = []
        for task in tasks:
            burst = []
            for _ in range(BURST):
                start = perf_counter_ns()
                task()
                burst.append(perf_counter_ns() - start)
            medians.append(median(burst))
            between()
            time.sleep(PAUSE_S)
        bursts.append([one - medians[0] for one in medians[1:]])
    return [median(column) / 1e3 for column in zip(*bursts, strict=True)]


def main() -> None:
    for row in rows():
        print(f"{row.what:48} {row.figure:8.3f} {row.unit:4} {row.reach:10} {row.yardstick}")


if __name__ == "__main__":
    if "--inside" in sys.argv:
        _inside()
    else:
        main()
