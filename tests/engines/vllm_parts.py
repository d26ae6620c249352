"""The real parts of vLLM that need a GPU or several ranks, driven without either.

The real V2 manager and dispatch function, the real V1 runner's methods and CUDAGraphWrapper, over
stand-ins for torch's graph objects, for the process groups and for the model. Run by the Python
that has vLLM, with ``GRAPHDIAG_TRACE``; prints a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from graphdiag_collectors import vllm as collector

SIZES = [1, 2, 4, 8, 16, 32]


class Graph:
    """Stands in for ``torch.cuda.CUDAGraph``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1


@contextlib.contextmanager
def nothing(*_: Any, **__: Any) -> Iterator[Any]:
    yield SimpleNamespace()


class Platform:
    @staticmethod
    def get_global_graph_pool() -> tuple[int, int]:
        return (0, 1)


def config(mode: str, **more: Any) -> SimpleNamespace:
    from vllm.config import CompilationConfig

    compilation = CompilationConfig(
        cudagraph_mode=mode, mode=3, cudagraph_capture_sizes=SIZES, max_cudagraph_capture_size=32
    )
    compilation.splitting_ops = list(compilation._attention_ops)
    compilation.compile_sizes = []
    compilation.cudagraph_num_of_warmups = 1
    given: dict[str, Any] = {
        "compilation_config": compilation,
        "num_speculative_tokens": 0,
        "speculative_config": None,
        "lora_config": None,
        "scheduler_config": SimpleNamespace(max_num_seqs=32, max_num_batched_tokens=512),
        "parallel_config": SimpleNamespace(
            tensor_parallel_size=1,
            data_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_rank=0,
            rank=0,
            world_size=1,
        ),
        "cache_config": SimpleNamespace(use_kda_recoverssm=False, num_gpu_blocks=10, block_size=16),
        "observability_config": SimpleNamespace(cudagraph_metrics=False),
        "model_config": SimpleNamespace(is_encoder_decoder=False, model="parts"),
        "compute_hash": lambda: "parts",
    }
    return SimpleNamespace(**{**given, **more})


def plan(lengths: list[int], new: int = 0) -> SimpleNamespace:
    old = len(lengths) - new
    return SimpleNamespace(
        total_num_scheduled_tokens=sum(lengths),
        num_scheduled_tokens={f"cmpl-{index}": n for index, n in enumerate(lengths)},
        scheduled_new_reqs=[SimpleNamespace(num_computed_tokens=0)] * new,
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[f"cmpl-{index}" for index in range(old)],
            num_computed_tokens=[10] * old,
            num_output_tokens=[1] * old,
            resumed_req_ids=set(),
        ),
        finished_req_ids=set(),
        scheduled_encoder_inputs={},
    )


def fake_graphs() -> None:
    import torch
    import vllm.compilation.cuda_graph as graphs

    torch.cuda.CUDAGraph = Graph
    torch.cuda.graph = nothing
    graphs.current_stream = lambda: None
    graphs.capture_pool = nothing
    graphs.weak_ref_tensors = lambda output: output
    graphs.current_platform = Platform


def v1() -> None:
    """Capture and replay the real wrappers by the real runner methods."""
    import torch
    from vllm.compilation.cuda_graph import CUDAGraphWrapper
    from vllm.config import CUDAGraphMode
    from vllm.forward_context import override_forward_context
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
    from vllm.v1.worker import gpu_model_runner

    torch.accelerator.synchronize = lambda *_: None
    real = gpu_model_runner.GPUModelRunner
    settings = config("FULL_AND_PIECEWISE")
    pieces = [
        CUDAGraphWrapper(torch.nn.Identity(), settings, CUDAGraphMode.PIECEWISE) for _ in range(3)
    ]
    full = CUDAGraphWrapper(torch.nn.Identity(), settings, CUDAGraphMode.FULL)

    class Runner:
        _is_uniform_decode = staticmethod(real._is_uniform_decode)
        _determine_batch_execution_and_padding = real._determine_batch_execution_and_padding
        _warmup_and_capture = real._warmup_and_capture
        _capture_cudagraphs = real._capture_cudagraphs
        uniform_decode_query_len = 1
        use_async_scheduling = False
        lora_config = None

        def __init__(self) -> None:
            self.vllm_config = settings
            self.compilation_config = settings.compilation_config
            self.model_config = settings.model_config
            self.parallel_config = SimpleNamespace(use_ubatching=False, data_parallel_rank=0)
            self.cudagraph_dispatcher = CudagraphDispatcher(settings)
            self.cudagraph_dispatcher.initialize_cudagraph_keys(CUDAGraphMode.FULL_AND_PIECEWISE, 1)
            self.input_batch = SimpleNamespace(lora_id_to_lora_request={})
            self.load_config = SimpleNamespace(use_tqdm_on_load=False)
            self.device = torch.device("cpu")

        def maybe_remove_all_loras(self, *_: Any) -> None: ...

        def forward(self, mode: Any, key: Any) -> None:
            context = SimpleNamespace(batch_descriptor=key, cudagraph_runtime_mode=mode)
            with override_forward_context(context):
                x = torch.zeros(key.num_tokens, 4)
                if mode is CUDAGraphMode.PIECEWISE:
                    for piece in pieces:
                        x = piece(x)
                else:
                    full(x)

        def _dummy_run(
            self, num_tokens: int, cudagraph_runtime_mode: Any = None, **given: Any
        ) -> None:
            uniform = given.get("uniform_decode", False)
            mode, key, *_ = self._determine_batch_execution_and_padding(
                num_tokens=num_tokens,
                num_reqs=num_tokens,
                num_scheduled_tokens_np=None,
                max_num_scheduled_tokens=1,
                force_eager=cudagraph_runtime_mode is CUDAGraphMode.NONE,
                force_uniform_decode=uniform,
                force_has_lora=False,
                force_num_active_loras=0,
            )
            self.forward(mode, key)

        def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> None:
            mode, key, *_ = self._determine_batch_execution_and_padding(
                num_tokens=scheduler_output.total_num_scheduled_tokens,
                num_reqs=len(scheduler_output.num_scheduled_tokens),
                num_scheduled_tokens_np=None,
                max_num_scheduled_tokens=max(scheduler_output.num_scheduled_tokens.values()),
            )
            self.forward(mode, key)
            self.reqs = len(scheduler_output.num_scheduled_tokens)

        def sample_tokens(self, grammar_output: Any) -> Any:
            return SimpleNamespace(sampled_token_ids=[[1]] * self.reqs)

        def capture_model(self) -> int:
            for mode, keys in self.cudagraph_dispatcher.get_capture_descs():
                self._capture_cudagraphs(keys, mode)
            return 1 << 20

    # The real methods are wrapped already; what stands in for the rest is wrapped as they are.
    from graphdiag_collectors import vllm_capture, vllm_v1

    state = collector.STATE
    assert state is not None
    space = SimpleNamespace(GPUModelRunner=Runner)
    vllm_v1.hook_runner(state, space)  # type: ignore[arg-type]
    vllm_capture.hook_runner(state, space)  # type: ignore[arg-type]
    runner = Runner()
    runner.capture_model()

    def step(*args: Any) -> None:
        runner.execute_model(plan(*args))
        runner.sample_tokens(None)

    step([1] * 5)
    step([1, 1, 9], 1)
    step([1] * 33)
    two_ranks(gpu_model_runner, runner, step)


def two_ranks(module: Any, runner: Any, step: Any) -> None:
    """Two more steps as one of two ranks: a larger peer, then one that wants eager."""
    import torch

    answers = iter([(False, torch.tensor([16, 16]), 2), (False, torch.tensor([3, 3]), 0)])
    module.coordinate_batch_across_dp = lambda **_: next(answers)
    runner.vllm_config.parallel_config.data_parallel_size = 2
    runner._graphdiag.ranks = 2
    runner._graphdiag.changed()
    step([1] * 3)
    step([1] * 3)


def v2() -> None:
    """Capture and dispatch by the real manager and the real dispatch function."""
    import torch
    import vllm.v1.worker.gpu.cudagraph_utils as managers
    from vllm.config import CUDAGraphMode
    from vllm.v1.worker.gpu import dp_utils

    from graphdiag_collectors import vllm_capture, vllm_v2

    managers.get_pp_group = lambda: SimpleNamespace(is_first_rank=True, is_last_rank=True)
    managers.current_platform = Platform
    managers.graph_capture = nothing
    managers.capture_pool = nothing
    managers.current_stream = lambda: None
    settings = config("FULL_AND_PIECEWISE")
    manager = managers.ModelCudaGraphManager(
        settings, torch.device("cpu"), CUDAGraphMode.FULL_AND_PIECEWISE, 1
    )

    class Output:
        def __init__(self, reqs: int) -> None:
            self.output = SimpleNamespace(sampled_token_ids=[[1]] * reqs)

        def get_output(self) -> Any:
            return self.output

    class Runner:
        def __init__(self) -> None:
            self.vllm_config = settings
            self.cudagraph_manager = manager
            self.device = torch.device("cpu")
            self.size = 1

        def execute_model(
            self, scheduler_output: Any, dummy_run: bool = False, is_profile: bool = False
        ) -> None:
            self.reqs = len(scheduler_output.num_scheduled_tokens)
            longest = max(scheduler_output.num_scheduled_tokens.values())
            desc, _ = dp_utils.dispatch_cg_and_sync_dp(
                self.cudagraph_manager,
                self.reqs,
                scheduler_output.total_num_scheduled_tokens,
                1 if longest == 1 else None,
                self.size,
                0,
                max_query_len=longest,
                need_eager=is_profile,
            )
            if desc.cg_mode is CUDAGraphMode.FULL:
                managers.CudaGraphManager.run_fullgraph(manager, desc)

        def sample_tokens(self, grammar_output: Any) -> Any:
            return Output(self.reqs)

        def capture_model(self) -> int:
            # The base class's loop, with a model that does nothing.
            managers.CudaGraphManager.capture(manager, lambda desc, warmup: lambda mode: None)
            return 1 << 21

    state = collector.STATE
    assert state is not None
    vllm_v2.hook_runner(state, SimpleNamespace(GPUModelRunner=Runner))  # type: ignore[arg-type]
    vllm_capture.hook_runner(state, SimpleNamespace(GPUModelRunner=Runner))  # type: ignore[arg-type]
    vllm_v2.hook_output(state, SimpleNamespace(AsyncOutput=Output))  # type: ignore[arg-type]
    runner = Runner()

    def step(*args: Any) -> None:
        runner.execute_model(plan(*args))
        runner.sample_tokens(None).get_output()

    runner.execute_model(plan([1] * 40), dummy_run=True, is_profile=True)
    step([1] * 2)  # before the capture
    runner.capture_model()
    step([1] * 5)
    step([1, 1, 9], 1)
    step([1] * 33)
    # A peer with 12 tokens, then one that wants eager.
    peers = iter([(12, 2, 1), (12, 0, 0)])

    def all_reduce(tensor: Any, group: Any) -> None:
        tokens, mode, uniform = next(peers)
        tensor[0][1], tensor[1][1], tensor[2][1], tensor[3][1], tensor[5][1] = (
            *(tokens, mode, uniform, -1, tokens),
        )

    dp_utils.dist = SimpleNamespace(all_reduce=all_reduce)
    dp_utils.get_dp_group = lambda: SimpleNamespace(cpu_group=None)
    dp_utils.should_skip_dp_coordination = lambda: False
    runner.size = 2
    runner._graphdiag.ranks = 2
    runner._graphdiag.changed()
    step([1] * 3)
    step([1] * 3)


def compiled() -> None:
    """Compile, and load from the cache, by the real CompilerManager; fail to load an artifact."""
    import torch
    import vllm.compilation.backends as backends
    import vllm.compilation.decorators as decorators
    from vllm.config.utils import Range

    settings = config("NONE")
    settings.compilation_config.backend = "eager"
    settings.compilation_config.local_cache_dir = f"{sys.argv[1]}/torch_aot_compile/0123abcd"
    settings.compile_debug_dump_path = lambda: None
    manager = backends.CompilerManager(settings.compilation_config)
    folder = Path(sys.argv[1], "0a1b2c3d4e/rank_0_0/backbone")
    folder.mkdir(parents=True)
    manager.initialize_cache(str(folder))
    graph = torch.fx.symbolic_trace(torch.nn.Identity())
    factors = {"env": {"VLLM_SECRET": "s3cret"}, "config_hash": "aa", "code_hash": "bb"}
    (folder / "cache_key_factors.json").write_text(json.dumps(factors))

    def compile_all() -> None:
        for index in range(2):
            manager.compile(
                graph,
                [torch.zeros(2)],
                {},
                settings.compilation_config,
                compile_range=Range(1, 8192),
                graph_index=index,
                num_graphs=2,
            )

    with decorators.monitor_torch_compile(settings, tag="backbone"):
        compile_all()
    # The eager compiler has no cache of its own; from here on it has.
    manager.compiler.load = lambda *_: graph
    entry = {"graph_handle": ("name", "path"), "cache_key": "key"}
    manager.cache = {(Range(1, 8192), index, "eager"): entry for index in range(2)}
    compile_all()
    model = SimpleNamespace(
        vllm_config=settings,
        compilation_config=settings.compilation_config,
        _is_encoder=False,
        forward=compiled,
    )
    folder = Path(sys.argv[1], "torch_aot_compile/0123abcd/rank_0_0")
    folder.mkdir(parents=True)
    (folder / "model").write_text("no artifact")
    for name in ("model", "absent"):
        assert decorators._try_load_aot_compiled_fn(model, str(folder / name)) is None


if __name__ == "__main__":
    collector.register()
    import vllm.v1.worker.gpu_model_runner  # noqa: F401

    fake_graphs()
    v1()
    v2()
    compiled()
    print(json.dumps({"hooks": collector.STATE.hooks.describe()}))
