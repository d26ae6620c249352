"""Small classes shaped like those of SGLang up to 0.5.13; see :mod:`sglang_standins`."""

from __future__ import annotations

from bisect import bisect_left
from types import SimpleNamespace
from typing import Any

from tests.collectors.sglang_standins import CaptureHiddenMode, plain_spec, server_args


def old_engine(tuples: bool = True, owner: str = "graph_runner") -> Any:
    """The classes up to 0.5.13: the runner holds its graphs.

    ``tuples`` as up to 0.5.8, where forward returns a pair; ``owner`` is the attribute that holds
    the runner, ``cuda_graph_runner`` up to 0.4.10.
    """

    class CudaGraphRunner:
        def __init__(self, model_runner: Any, sizes: list[int], **more: Any) -> None:
            self.model_runner = model_runner
            self.capture_bs, self.max_bs = sizes, sizes[-1]
            self.disable_padding = self.enable_dp_attention = self.require_mlp_sync = False
            self.num_tokens_per_bs = 1
            self.capture_hidden_mode = CaptureHiddenMode.NULL
            self.graphs: dict[Any, Any] = {}
            vars(self).update(more)
            self.capture()

        def recapture_if_needed(self, forward_batch: Any) -> None: ...

        def capture(self) -> None:
            for size in reversed(self.capture_bs):
                self.graphs[size] = self.capture_one_batch_size(size, None)

        def capture_one_batch_size(self, bs: int, forward: Any) -> Any:
            return f"graph {bs}"

        def can_run(self, forward_batch: Any) -> bool:
            size = forward_batch.batch_size
            if self.enable_dp_attention:
                size = sum(forward_batch.global_num_tokens_cpu)
            hidden = forward_batch.capture_hidden_mode
            return size <= self.max_bs and hidden in (
                CaptureHiddenMode.NULL,
                self.capture_hidden_mode,
            )

        def replay_prepare(self, forward_batch: Any) -> None:
            self.raw_bs = forward_batch.batch_size
            self.bs = self.capture_bs[bisect_left(self.capture_bs, self.raw_bs)]

        def replay(self, forward_batch: Any, skip_attn_backend_init: bool = False) -> Any:
            if not skip_attn_backend_init:
                self.replay_prepare(forward_batch)
            return self.graphs[self.bs]

    class EAGLEDraftCudaGraphRunner:
        """Of 0.4.6: keeps no sizes, and its capture calls the other class's."""

        def __init__(self, model_runner: Any, sizes: list[int]) -> None:
            self.model_runner = model_runner
            self.capture_bs, self.max_bs = sizes, sizes[-1]
            self.graphs: dict[int, Any] = {}
            self.capture()

        def capture(self) -> None:
            CudaGraphRunner.capture(self)  # type: ignore[arg-type]

        def capture_one_batch_size(self, num_seqs: int, forward: Any) -> Any:
            return f"draft {num_seqs}"

        def can_run(self, forward_batch: Any) -> bool:
            return bool(forward_batch.batch_size <= self.max_bs)

        def replay(self, forward_batch: Any) -> Any:
            raw = forward_batch.batch_size
            bucket = self.capture_bs[bisect_left(self.capture_bs, raw)]
            forward_batch.batch_size = bucket
            output = self.graphs[bucket]
            forward_batch.batch_size = raw
            return output

    class PiecewiseCudaGraphRunner:
        def __init__(self, model_runner: Any, sizes: list[int]) -> None:
            self.model_runner = model_runner
            self.capture_num_tokens, self.max_num_tokens = sizes, sizes[-1]
            self.capture()

        def capture(self) -> None:
            for size in reversed(self.capture_num_tokens):
                self.capture_one_batch_size(size)

        def capture_one_batch_size(self, num_tokens: int) -> None: ...

        def can_run(self, forward_batch: Any) -> bool:
            return len(forward_batch.input_ids) <= self.max_num_tokens

        def replay(self, forward_batch: Any, **kwargs: Any) -> Any:
            self.raw_num_tokens = len(forward_batch.input_ids)
            return f"piecewise {self.raw_num_tokens}"

    class CPUGraphRunner:
        """Of all versions: sets its sizes only when it pads."""

        def __init__(self, model_runner: Any, sizes: list[int]) -> None:
            self.model_runner = model_runner
            self.capture_bs, self.max_bs = sizes, sizes[-1]
            self.capture()

        def capture(self) -> None:
            for size in reversed(self.capture_bs):
                self.capture_one_batch_size(size, None, skip_cross_attention=True)

        def capture_one_batch_size(
            self, bs: int, forward: Any, skip_cross_attention: bool = False
        ) -> None: ...

        def can_run_graph(self, forward_batch: Any) -> bool:
            return bool(forward_batch.batch_size <= self.max_bs)

        def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
            raw = forward_batch.batch_size
            if raw not in self.capture_bs:
                self.raw_bs = raw
                self.bs = self.capture_bs[bisect_left(self.capture_bs, raw)]
            return f"compiled {raw}"

        can_run, replay = can_run_graph, execute

    class ModelRunner:
        def __init__(self, device: str = "cuda", draft: bool = False) -> None:
            self.device, self.is_draft_worker = device, draft
            self.server_args = server_args()
            self.spec_algorithm = plain_spec()
            self.tp_rank, self.tp_size, self.pp_rank, self.pp_size = 0, 1, 0, 1
            self.max_running_requests, self.max_total_num_tokens = 8, 100
            setattr(self, owner, None)
            self.piecewise_cuda_graph_runner: Any = None

        def forward(self, forward_batch: Any, skip_attn_backend_init: bool = False) -> Any:
            runner = getattr(self, owner)
            mode = forward_batch.forward_mode.name
            graph = bool(
                mode in ("DECODE", "TARGET_VERIFY", "IDLE")
                and runner
                and runner.can_run(forward_batch)
            )
            if graph:
                output = runner.replay(forward_batch)
            elif self.piecewise_cuda_graph_runner and mode == "EXTEND":
                graph = self.piecewise_cuda_graph_runner.can_run(forward_batch)
                if graph:
                    output = self.piecewise_cuda_graph_runner.replay(forward_batch)
            if not graph:
                output = f"eager {forward_batch.batch_size}"
            if tuples:
                return output, graph
            return SimpleNamespace(logits_output=output, can_run_graph=graph)

    return SimpleNamespace(**{k: v for k, v in locals().items() if isinstance(v, type)})
