"""What the SGLang hooks add to a step, on stand-ins in the shape of SGLang 0.5.23's classes.

The stand-ins call each other as the engine does and compute nothing: ``Scheduler.run_batch``,
``ModelRunner.forward``, the runner's ``can_run_graph``, the backend's ``replay`` with a new
``ShapeKey`` at each step, ``Scheduler.process_batch_result``. So the difference between a hooked
and a plain engine is the whole of the hooks and of the row they write. Plain and hooked engines
take turns in bursts.

The yardstick is what SGLang spends on one word of the same step, whether a graph ran:
``increment_decode_cuda_graph_pass``, which counts it for ``sglang:cuda_graph_passes_total`` where
``--enable-metrics`` is given. The engine runs Prometheus in its multi-process mode, and so does
this.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Row, interleaved

REACH = "< 3"
ATTRIBUTES = 150
"""Attributes of the engine's large objects; smaller ones are laid out apart."""

Mode = IntEnum("Mode", "EXTEND DECODE MIXED IDLE TARGET_VERIFY")
HiddenMode = IntEnum("HiddenMode", "NULL LAST FULL", start=0)


def rows() -> list[Row]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRAPHDIAG_TRACE"] = f"{folder}/trace.parquet"
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        counter = _counter()
        one, other = _module("one"), _module("other")
        plain, hooked = one._engine(), other._engine()
        _hook(hooked)
        for what in _STEPS:
            tasks = (lambda: None, counter, one._STEPS[what](plain), other._STEPS[what](hooked))
            nothing, counts, base, with_hook = interleaved(tasks)
            yardstick = f"{(counts - nothing) / 1e3:.2f} us (cuda_graph_passes_total, one step)"
            figure = (with_hook - base) / 1e3
            found.append(Row(f"SGLang hooks, {what}", figure, "us", REACH, yardstick))
        from graphdiag_collectors import session

        status = session.current().status()
        session.close()
        print(f"sglang_hook: {status.rows} rows, {status.dropped} dropped", file=sys.stderr)
    return found


def _module(name: str) -> Any:
    """Load this file once more: two engines in one code would undo what the interpreter learns."""
    spec = spec_from_file_location(name, __file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _counter() -> Callable[[], None]:
    """Count a decode step as SGLang does."""
    from prometheus_client import Counter

    labels = {
        "model_name": "benchmark",
        "engine_type": "unified",
        "tp_rank": 0,
        "pp_rank": 0,
        "moe_ep_rank": 0,
    }
    total = Counter("sglang:cuda_graph_passes_total", "Passes.", [*labels, "mode"])

    def increment_decode_cuda_graph_pass() -> None:
        total.labels(**labels, mode="decode_cuda_graph").inc(1)

    return increment_decode_cuda_graph_pass


@dataclass(frozen=True)
class ShapeKey:
    """Of the engine: what a graph is looked up by."""

    size: int
    stream_idx: int | None = None
    variant_label: str | None = None
    attention_variant: str | None = None


@dataclass
class Output:
    """``ModelRunnerOutput``."""

    logits_output: Any
    can_run_graph: bool
    expert_distribution_metrics: Any = None


@dataclass
class Result:
    """``GenerationBatchResult``."""

    logits_output: Any = None
    next_token_ids: Any = None
    can_run_cuda_graph: bool = False
    num_correct_drafts_per_req_cpu: Any = None


class Request:
    """``Req``."""

    def __init__(self, rid: str) -> None:
        self.rid = rid
        self.finished_reason = None

    def finished(self) -> bool:
        """Say whether nothing is left to generate."""
        return self.finished_reason is not None


def _many(owner: Any) -> None:
    for index in range(ATTRIBUTES):
        setattr(owner, f"attribute_{index}", None)


class ForwardBatch:
    """Of the engine: the batch as the model gets it."""

    def __init__(self, **fields: Any) -> None:
        _many(self)
        for name, value in fields.items():
            setattr(self, name, value)


class ScheduleBatch:
    """Of the engine: the batch as the scheduler has it."""

    def __init__(self, forward: ForwardBatch, size: int) -> None:
        _many(self)
        self.forward = forward
        self.reqs = [Request(f"cmpl-{index}") for index in range(size)]


def _batch(mode: Mode, size: int, tokens: int) -> ScheduleBatch:
    forward = ForwardBatch(
        forward_mode=mode,
        batch_size=size,
        input_ids=SimpleNamespace(shape=(tokens,)),
        extend_num_tokens=tokens if mode is Mode.EXTEND else None,
        seq_lens_sum=500 * size,
        spec_info=None,
        replace_embeds=None,
        input_embeds=None,
        mm_inputs=None,
        capture_hidden_mode=HiddenMode.NULL,
        return_logprob=False,
        lora_ids=None,
        extend_prefix_lens_cpu=None,
        global_num_tokens_cpu=None,
        original_global_num_tokens_cpu=None,
    )
    return ScheduleBatch(forward, size)


def _engine() -> SimpleNamespace:
    """Return fresh classes, because the hooks patch classes."""

    class BaseCudaGraphRunner: ...

    class FullCudaGraphBackend:
        def __init__(self, cuda_graph_runner: Any) -> None:
            self._graphs: dict[Any, Any] = {}
            self._cuda_graph_runner = cuda_graph_runner

        def capture_one(self, shape_key: Any, forward_fn: Any, capture_inputs: Any = None) -> None:
            self._graphs[shape_key] = forward_fn

        def replay(self, shape_key: Any, static_forward_batch: Any, **kwargs: Any) -> Any:
            return self

    class DecodeCudaGraphRunner(BaseCudaGraphRunner):
        def __init__(self, model_runner: Any, sizes: list[int]) -> None:
            _many(self)
            self.model_runner = model_runner
            self.capture_bs, self.max_bs = sizes, sizes[-1]
            self.disable_padding = self.require_mlp_sync = self.require_mlp_tp_gather = False
            self.enable_two_batch_overlap = self.is_encoder_decoder = False
            self.ragged_verify_mode = False
            self.captured_req_width = 1
            self.capture_hidden_mode = HiddenMode.NULL
            self.capture_forward_mode = Mode.DECODE
            self.backend = FullCudaGraphBackend(self)
            self.capture()

        def capture(self) -> None:
            for size in reversed(self.capture_bs):
                self.backend.capture_one(ShapeKey(size), None)

        def can_run_graph(self, forward_batch: Any) -> bool:
            return bool(forward_batch.batch_size <= self.max_bs)

        def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            self.raw_bs = forward_batch.batch_size
            self.bs = next(size for size in self.capture_bs if size >= self.raw_bs)
            return self.backend.replay(ShapeKey(size=self.bs), forward_batch)

    class EagerRunner:
        def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            return self

    class ModelRunner:
        def __init__(self) -> None:
            _many(self)
            self.device, self.is_draft_worker = "cuda", False
            self.server_args = SimpleNamespace(model_path="benchmark")
            self.spec_algorithm = SimpleNamespace(is_ngram=lambda: False)
            self.lora_manager = None
            self.tp_rank, self.tp_size = 0, 1
            self.eager_runner = EagerRunner()
            self.prefill_cuda_graph_runner = self.eager_runner
            self.decode_cuda_graph_runner: Any = None

        def forward(
            self,
            forward_batch: Any,
            skip_attn_backend_init: Any = None,
            pp_proxy_tensors: Any = None,
            reinit_attn_backend: bool = False,
            split_forward_count: int = 1,
        ) -> Output:
            runner = self.decode_cuda_graph_runner
            graphable = forward_batch.forward_mode in (Mode.DECODE, Mode.TARGET_VERIFY)
            if graphable and runner.can_run_graph(forward_batch):
                output = runner.execute(forward_batch, pp_proxy_tensors=pp_proxy_tensors)
                return Output(output, True)
            output = self.eager_runner.execute(forward_batch, pp_proxy_tensors)
            return Output(output, False)

    class Scheduler:
        def __init__(self, model_runner: Any) -> None:
            _many(self)
            self.tp_worker = SimpleNamespace(model_runner=model_runner)
            self.model_runner = model_runner
            self.waiting_queue: list[Any] = []

        def run_batch(self, batch: Any, pp_proxy_tensors: Any = None) -> Result:
            output = self.model_runner.forward(batch.forward, pp_proxy_tensors=pp_proxy_tensors)
            return Result(output.logits_output, None, output.can_run_graph)

        def process_batch_result(self, batch: Any, result: Any) -> None: ...

    return SimpleNamespace(
        Scheduler=Scheduler,
        ModelRunner=ModelRunner,
        DecodeCudaGraphRunner=DecodeCudaGraphRunner,
        FullCudaGraphBackend=FullCudaGraphBackend,
    )


def _hook(engine: SimpleNamespace) -> None:
    from graphdiag_collectors import sglang
    from graphdiag_collectors.sglang_captures import patch_backend_class, patch_capture
    from graphdiag_collectors.sglang_forward import patch_model_runner
    from graphdiag_collectors.sglang_runners import patch_runner
    from graphdiag_collectors.sglang_scheduler import patch_scheduler

    patch_capture(sglang.HOOKS, engine.DecodeCudaGraphRunner)
    patch_runner(sglang.HOOKS, engine.DecodeCudaGraphRunner)
    patch_backend_class(sglang.HOOKS, engine.FullCudaGraphBackend)
    patch_model_runner(sglang.HOOKS, engine.ModelRunner)
    patch_scheduler(sglang.HOOKS, engine.Scheduler)


def _scheduler(engine: SimpleNamespace) -> Any:
    model = engine.ModelRunner()
    model.decode_cuda_graph_runner = engine.DecodeCudaGraphRunner(model, [1, 2, 4, 8, 16, 32])
    return engine.Scheduler(model)


def _step(mode: Mode, size: int, tokens: int) -> Callable[[SimpleNamespace], Callable[[], None]]:
    def made(engine: SimpleNamespace) -> Callable[[], None]:
        scheduler, batch = _scheduler(engine), _batch(mode, size, tokens)

        def step() -> None:
            scheduler.process_batch_result(batch, scheduler.run_batch(batch))

        return step

    return made


def _overlapped(engine: SimpleNamespace) -> Callable[[], None]:
    """Return a step whose result is processed after the next was launched."""
    scheduler, batches = _scheduler(engine), [_batch(Mode.DECODE, 12, 12) for _ in range(2)]
    waiting = [(batches[1], scheduler.run_batch(batches[1]))]

    def step() -> None:
        batch, result = waiting.pop()
        batches.reverse()
        waiting.append((batches[0], scheduler.run_batch(batches[0])))
        scheduler.process_batch_result(batch, result)

    return step


def _forward(engine: SimpleNamespace) -> Callable[[], None]:
    """Return a forward that no scheduler asked for: the envelope, decision and replay."""
    model, batch = _scheduler(engine).model_runner, _batch(Mode.DECODE, 12, 12).forward

    def step() -> None:
        model.forward(batch, pp_proxy_tensors=None)

    return step


_STEPS: dict[str, Callable[[SimpleNamespace], Callable[[], None]]] = {
    "decode, graph replayed": _step(Mode.DECODE, 12, 12),
    "decode, graph replayed, overlapped": _overlapped,
    "decode, over the largest size": _step(Mode.DECODE, 40, 40),
    "verify of drafts, graph replayed": _step(Mode.TARGET_VERIFY, 12, 48),
    "prefill, graphs off": _step(Mode.EXTEND, 3, 700),
    "ModelRunner.forward alone, graph replayed": _forward,
}


def main() -> None:
    for row in rows():
        print(f"{row.what:56} {row.figure:8.3f} {row.unit:4} {row.reach:6} {row.yardstick}")


if __name__ == "__main__":
    main()
