"""Small classes shaped like those of SGLang that the collector hooks, of several versions.

Each function returns fresh classes, because the collector patches classes. They decide, pad and
call each other as the real ones do, and compute nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

ForwardMode = IntEnum(
    "ForwardMode",
    "EXTEND DECODE MIXED IDLE TARGET_VERIFY DRAFT_EXTEND_V2 SPLIT_PREFILL DLLM_EXTEND",
)
CaptureHiddenMode = IntEnum("CaptureHiddenMode", "NULL LAST FULL", start=0)


@dataclass(frozen=True)
class ShapeKey:
    size: int
    stream_idx: int | None = None
    variant_label: str | None = None
    attention_variant: str | None = None


class Ids:
    """An ``input_ids`` tensor: nothing but its shape."""

    def __init__(self, rows: int) -> None:
        self.shape = (rows,)

    def __len__(self) -> int:
        return self.shape[0]


class Tensor:
    """An answer that waits for the device when it is read."""

    def __bool__(self) -> bool:
        raise AssertionError("a hook must not read a tensor")


def batch(mode: str = "DECODE", size: int = 1, tokens: int | None = None, **more: Any) -> Any:
    """A ``ForwardBatch``."""
    tokens = size if tokens is None else tokens
    extend = mode in ("EXTEND", "MIXED", "SPLIT_PREFILL")
    fields = {
        "forward_mode": ForwardMode[mode],
        "batch_size": size,
        "input_ids": Ids(tokens),
        "extend_num_tokens": tokens if extend else None,
        "seq_lens_sum": 100 + tokens,
        "spec_info": None,
        "replace_embeds": None,
        "input_embeds": None,
        "capture_hidden_mode": CaptureHiddenMode.NULL,
        "return_logprob": False,
        "lora_ids": None,
        "global_num_tokens_cpu": None,
        "original_global_num_tokens_cpu": None,
    }
    return SimpleNamespace(**{**fields, **more})


def server_args(**more: Any) -> Any:
    fields = {
        "model_path": "tiny",
        "disable_cuda_graph_padding": False,
        "chunked_prefill_size": 2048,
        "max_prefill_tokens": 16384,
        "speculative_num_draft_tokens": None,
        "enable_dp_attention": False,
        "enable_lora": False,
        "attention_backend": "fa3",
    }
    return SimpleNamespace(**{**fields, **more})


def plain_spec() -> Any:
    return SimpleNamespace(is_ngram=lambda: False)


def new_engine() -> Any:
    """The classes of 0.5.14 and later: runners over backends."""

    class BaseCudaGraphRunner:
        def _pad_to_bucket(self, size: int, sizes: list[int]) -> int:
            return sizes[bisect_left(sizes, size)]

    class FullCudaGraphBackend:
        def __init__(self, runner: Any) -> None:
            self._cuda_graph_runner = runner
            self._graphs: dict[Any, Any] = {}

        def capture_one(self, shape_key: Any, forward_fn: Any, capture_inputs: Any = None) -> None:
            self._graphs[shape_key] = forward_fn
            forward_fn()

        def can_run(self, forward_batch: Any, shape_key: Any) -> bool:
            return shape_key in self._graphs

        def replay(self, shape_key: Any, static_forward_batch: Any, **kwargs: Any) -> Any:
            return self._graphs[shape_key]()

    class BreakableCudaGraphBackend(FullCudaGraphBackend):
        def capture_one(self, shape_key: Any, forward_fn: Any, capture_inputs: Any = None) -> None:
            self._graphs[shape_key] = SimpleNamespace(_segments=[1, 2, 3])

        def replay(self, shape_key: Any, static_forward_batch: Any, **kwargs: Any) -> Any:
            return self._graphs[shape_key]._segments and f"graph {shape_key.size}"

    class DecodeCudaGraphRunner(BaseCudaGraphRunner):
        def __init__(self, model_runner: Any, sizes: list[int], **more: Any) -> None:
            self.model_runner = model_runner
            self.capture_bs, self.max_bs = sizes, sizes[-1]
            self.disable_padding = self.require_mlp_sync = self.require_mlp_tp_gather = False
            self.enable_two_batch_overlap = self.is_encoder_decoder = False
            self.ragged_verify_mode = False
            self.captured_req_width = 1
            self.capture_hidden_mode = CaptureHiddenMode.NULL
            self.capture_forward_mode = ForwardMode.DECODE
            vars(self).update(more)
            self.backend = FullCudaGraphBackend(self)
            self.capture()

        def capture(self) -> None:
            for size in reversed(self.capture_bs):
                self.backend.capture_one(ShapeKey(size), lambda size=size: f"graph {size}")

        def can_run_graph(self, forward_batch: Any) -> Any:
            if forward_batch.replace_embeds is not None:
                return False
            size = forward_batch.batch_size
            if self.require_mlp_tp_gather:
                size = max(forward_batch.original_global_num_tokens_cpu)
            fits = size in self.capture_bs if self.disable_padding else size <= self.max_bs
            if self.require_mlp_sync:
                fits = fits and forward_batch.can_run_decode_cuda_graph
            if self.is_encoder_decoder:
                return fits and forward_batch.encoder_answer
            return fits

        def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            self.raw_bs = forward_batch.batch_size
            size = self.raw_bs
            if self.require_mlp_tp_gather:
                size = max(forward_batch.original_global_num_tokens_cpu)
            self.bs = self._pad_to_bucket(size, self.capture_bs)
            return self.backend.replay(ShapeKey(self.bs), forward_batch)

    class EAGLEDraftCudaGraphRunner(DecodeCudaGraphRunner):
        def can_run_graph(self, forward_batch: Any) -> bool:
            return bool(forward_batch.batch_size <= self.max_bs)

        def execute(self, forward_batch: Any) -> Any:
            raw = forward_batch.batch_size
            bucket = self._pad_to_bucket(raw, self.capture_bs)
            forward_batch.batch_size = bucket  # as the real one does
            output = self.backend.replay(ShapeKey(bucket), forward_batch)
            forward_batch.batch_size = raw
            return output

    class PrefillCudaGraphRunner(BaseCudaGraphRunner):
        def __init__(self, model_runner: Any, sizes: list[int]) -> None:
            self.model_runner = model_runner
            self.capture_num_tokens, self.max_num_tokens = sizes, sizes[-1]
            self.capture_hidden_mode = CaptureHiddenMode.NULL
            self._is_full_backend = False
            self.backend = BreakableCudaGraphBackend(self)
            self.capture()

        def _uses_eager_prefill_tail(self) -> bool:
            return False

        def capture(self) -> None:
            for size in reversed(self.capture_num_tokens):
                self.backend.capture_one(ShapeKey(size), lambda: None)

        def can_run_graph(self, forward_batch: Any) -> bool:
            tokens = len(forward_batch.input_ids)
            if tokens > self.max_num_tokens or forward_batch.return_logprob:
                return False
            return self._pad_to_bucket(tokens, self.capture_num_tokens) <= 2 * tokens

        def execute(self, forward_batch: Any, **kwargs: Any) -> Any:
            size = self._pad_to_bucket(len(forward_batch.input_ids), self.capture_num_tokens)
            return self.backend.replay(ShapeKey(size), forward_batch)

    class EagerRunner:
        def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            if forward_batch.forward_mode is ForwardMode.MIXED:
                forward_batch.forward_mode = ForwardMode.EXTEND  # as the real one does
            return f"eager {forward_batch.batch_size}"

    class ModelRunner:
        def __init__(self, device: str = "cuda", draft: bool = False, **more: Any) -> None:
            self.device, self.is_draft_worker = device, draft
            self.server_args = server_args()
            self.spec_algorithm = plain_spec()
            self.lora_manager = None
            self.tp_rank, self.tp_size, self.pp_rank, self.pp_size = 1, 2, 0, 1
            self.max_running_requests, self.max_total_num_tokens = 64, 4096
            self.req_to_token_pool = SimpleNamespace(size=64)
            self.graph_memory_usage = {"decode": 0.5, "prefill": 0.25}
            self.eager_runner = EagerRunner()
            self.decode_cuda_graph_runner: Any = None
            self.prefill_cuda_graph_runner: Any = None
            vars(self).update(more)

        def forward(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            decode, prefill = self.decode_cuda_graph_runner, self.prefill_cuda_graph_runner
            mode = forward_batch.forward_mode.name
            graphable = mode in ("DECODE", "TARGET_VERIFY", "IDLE")
            if graphable and decode and decode.can_run_graph(forward_batch):
                output = decode.execute(forward_batch, pp_proxy_tensors=pp_proxy_tensors)
                return SimpleNamespace(logits_output=output, can_run_graph=True)
            if forward_batch.global_num_tokens_cpu is not None:
                forward_batch.batch_size += 5  # prepare_mlp_sync_batch pads
            if mode == "SPLIT_PREFILL":
                forward_batch.split_index += 1
                return SimpleNamespace(logits_output="split", can_run_graph=False)
            if (
                mode in ("EXTEND", "MIXED")
                and prefill is not None
                and not isinstance(prefill, EagerRunner)
                and prefill.can_run_graph(forward_batch)
            ):
                output = prefill.execute(forward_batch)
                return SimpleNamespace(logits_output=output, can_run_graph=True)
            output = self.eager_runner.execute(forward_batch, pp_proxy_tensors=pp_proxy_tensors)
            return SimpleNamespace(logits_output=output, can_run_graph=False)

    return SimpleNamespace(**{k: v for k, v in locals().items() if isinstance(v, type)})


def scheduler_class() -> Any:
    """``Scheduler``: one target forward for each batch."""

    class Scheduler:
        def __init__(self, model_runner: Any) -> None:
            self.tp_worker = SimpleNamespace(model_runner=model_runner)
            self.waiting_queue: list[Any] = []

        def run_batch(self, batch: Any) -> Any:
            for one in batch.forwards:
                self.tp_worker.model_runner.forward(one, pp_proxy_tensors=None)
            return SimpleNamespace(next_token_ids=None)

        def process_batch_result(self, batch: Any, result: Any) -> None: ...

    return Scheduler


def scheduled(*forwards: Any, rids: tuple[str, ...] = ("r1", "r2")) -> Any:
    """A ``ScheduleBatch`` that will run ``forwards``."""
    reqs = [SimpleNamespace(rid=rid, finished=lambda: False) for rid in rids]
    return SimpleNamespace(forwards=forwards, reqs=reqs)
