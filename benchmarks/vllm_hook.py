"""What the vLLM collector costs: per step, and in throughput of the real engine on a CPU.

Needs the real vLLM: set ``GRAPHDIAG_VLLM_PYTHON`` to a Python that has it and pyarrow. The cost per
step is taken on the real dispatcher and the real ``_determine_batch_execution_and_padding``, called
as the runner calls them, in a runner that does nothing else: the whole hook is three wrapped
methods and the row. Runs with and without alternate in bursts of 2000 steps with a pause of 3 ms.
The yardstick is what vLLM's own ``--cudagraph-metrics`` adds to the same step in the same run, and
what it costs to send its statistics object from the worker's process to the engine's.

Throughput is the time of a decode step of the real engine, of a model so small that a step takes a
few ms. Steps with all per-step hooks and with none alternate and are compared in neighbouring
pairs, because the machine's speed changes from second to second by more than the difference.
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
ROUNDS = 24
REQUESTS, TOKENS = 16, 200
DETERMINE = "_determine_batch_execution_and_padding"
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
        cost: dict[str, float] = {}
        for part in ("--inside", "--engine"):
            child = [python, __file__, part, folder]
            done = subprocess.run(child, env=environment, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            cost |= json.loads(done.stdout.splitlines()[-1])
    found = []
    for what in ("decode, graph hit", "decode, over the largest size", "mixed, piecewise"):
        metrics = f"{cost[f'{what}: metrics']:.2f} us (--cudagraph-metrics, same step)"
        found.append(Row(f"vLLM hook, {what}", cost[f"{what}: hook"], "us", REACH, metrics))
    found.append(Row("CUDAGraphStat + observe alone", cost["stat"], "us", ""))
    found.append(Row("CUDAGraphStat pickled to the front and back", cost["pickle"], "us", ""))
    found.append(Row("vLLM hook, result fetched by another thread", cost["deferred"], "us", ""))
    speed = cost["throughput"]
    spread = f"95 %: {cost['low']:+.2f} to {cost['high']:+.2f}, {cost['steps']:.0f} steps"
    spread += f" of {cost['step']:.2f} ms each way"
    found.append(Row("engine on a CPU: throughput lost", speed, "%", "< 0.5", spread))
    return found


def _inside() -> None:
    """Measure in a Python that has vLLM, and print the figures in µs as JSON."""
    import numpy as np
    from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat
    from vllm.config import CompilationConfig, CUDAGraphMode
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
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
                self.output = SimpleNamespace(sampled_token_ids=[[1]] * 12)

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

    def plan(lengths: list[int]) -> SimpleNamespace:
        ids = [f"cmpl-{index}" for index in range(len(lengths))]
        cached = SimpleNamespace(
            req_ids=ids,
            resumed_req_ids=set(),
            num_computed_tokens=[500] * len(ids),
            num_output_tokens=[0 if length > 1 else 9 for length in lengths],
        )
        return SimpleNamespace(
            total_num_scheduled_tokens=sum(lengths),
            num_scheduled_tokens=dict(zip(ids, lengths, strict=True)),
            scheduled_new_reqs=[],
            scheduled_cached_reqs=cached,
            finished_req_ids=set(),
            scheduled_encoder_inputs={},
        )

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
        base, with_hook, with_metrics = _interleaved(tasks, log.reset)
        found[f"{what}: hook"] = (with_hook - base) / 1e3
        found[f"{what}: metrics"] = (with_metrics - base) / 1e3
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

    nothing, stats = _interleaved((lambda: None, stat), log.reset)
    found["stat"] = (stats - nothing) / 1e3
    sent = CUDAGraphStat(12, 16, 4, "FULL")
    nothing, pickled = _interleaved(
        (lambda: None, lambda: pickle.loads(pickle.dumps(sent, -1))), log.reset
    )
    found["pickle"] = (pickled - nothing) / 1e3
    found["deferred"] = _deferred(runner_class, plan([1] * 12)) / 1e3
    print(json.dumps(found))


def _engine(folder: str) -> None:
    """Serve the same requests by the real engine with the hooks on and off, in turns."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    import random

    from transformers import LlamaConfig, LlamaForCausalLM

    from graphdiag_collectors import vllm as collector

    tiny = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=512,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(tiny).save_pretrained(f"{folder}/tiny")
    collector.register()
    from vllm import LLM, SamplingParams
    from vllm.v1.worker import gpu_model_runner

    llm = LLM(
        model=f"{folder}/tiny",
        skip_tokenizer_init=True,
        max_num_seqs=32,
        max_model_len=256,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
    )
    rng = random.Random(0)
    prompts = [
        {"prompt_token_ids": [rng.randint(3, 500) for _ in range(8)]} for _ in range(REQUESTS)
    ]
    wanted = SamplingParams(max_tokens=TOKENS, ignore_eos=True, detokenize=False, temperature=0)

    state = collector.STATE
    assert state is not None
    names = ("execute_model", "sample_tokens", DETERMINE)
    owner = gpu_model_runner.GPUModelRunner
    engine = llm.llm_engine
    executor = engine.engine_core.engine_core.model_executor
    runner = executor.driver_worker.worker.model_runner
    # On the instance: a class that changes loses what the interpreter has learned about it.
    hooked = {name: vars(owner)[name].__get__(runner) for name in names}
    plain = {name: vars(owner)[name].__wrapped__.__get__(runner) for name in names}
    spent: dict[bool, list[int]] = {True: [], False: []}
    for again in range(ROUNDS):
        for index, prompt in enumerate(prompts):
            engine.add_request(f"{again}-{index}", prompt, wanted)
        for step in range(TOKENS):
            on = step % 4 in (0, 3)
            for name, function in (hooked if on else plain).items():
                setattr(runner, name, function)
            start = perf_counter_ns()
            engine.step()
            took = perf_counter_ns() - start
            if step > 7 and again:  # the prompts' steps and the first round are no measure
                spent[on].append(took)
        while engine.has_unfinished_requests():
            engine.step()
    ratios = [one / other for one, other in zip(spent[True], spent[False], strict=True)]
    draws = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(1000))
    found = {
        "throughput": 100 * (median(ratios) - 1),
        "low": 100 * (draws[25] - 1),
        "high": 100 * (draws[974] - 1),
        "step": median(spent[False]) / 1e6,
        "steps": len(spent[True]),
    }
    print(json.dumps(found))


def _deferred(runner_class: Callable[[], type[Any]], batch: Any) -> float:
    """Return the ns the hook adds where results come from ``get_output``, that call included."""
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
    base, with_hook = _interleaved((lambda: step(one), lambda: step(other)), lambda: None)
    return with_hook - base


def _interleaved(tasks: tuple[Callable[[], None], ...], between: Callable[[], None]) -> list[float]:
    """Return the median ns of a call of each task; the tasks take turns in bursts."""
    spent: list[list[int]] = [[] for _ in tasks]
    for _ in range(BURSTS):
        for task, times in zip(tasks, spent, strict=True):
            burst = []
            for _ in range(BURST):
                start = perf_counter_ns()
                task()
                burst.append(perf_counter_ns() - start)
            times += burst
            between()
            time.sleep(PAUSE_S)
    return [median(times) for times in spent]


def main() -> None:
    for row in rows():
        print(f"{row.what:48} {row.figure:8.3f} {row.unit:4} {row.reach:10} {row.yardstick}")


if __name__ == "__main__":
    if "--inside" in sys.argv:
        _inside()
    elif "--engine" in sys.argv:
        _engine(sys.argv[2])
    else:
        main()
