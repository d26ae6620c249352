"""Classes shaped like vLLM's, by version: only the names and signatures that the hooks rely on."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, replace
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

V1_VERSIONS = ("0.11", "0.13", "0.19", "0.32")
SIZES = (1, 2, 4, 8, 16, 32)


class Mode(Enum):
    NONE = 0
    PIECEWISE = 1
    FULL = 2
    FULL_DECODE_ONLY = (2, 0)
    FULL_AND_PIECEWISE = (2, 1)


OldDescriptor = namedtuple("OldDescriptor", "num_tokens uniform_decode", defaults=(False,))
MiddleDescriptor = namedtuple(
    "MiddleDescriptor", "num_tokens num_reqs uniform has_lora", defaults=(None, False, False)
)


@dataclass(frozen=True)
class NewDescriptor:
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    has_lora: bool = False
    num_active_loras: int = 0


@dataclass(frozen=True)
class ExecutionDescriptor:
    cg_mode: Mode
    num_tokens: int
    num_reqs: int | None
    uniform_token_count: int | None = None
    max_query_len: int | None = None
    num_active_loras: int = 0


@dataclass
class Cached:
    req_ids: list[str] = field(default_factory=list)
    num_computed_tokens: list[int] = field(default_factory=list)
    num_output_tokens: list[int] = field(default_factory=list)
    resumed_req_ids: set[str] = field(default_factory=set)


@dataclass
class Plan:
    """``SchedulerOutput``."""

    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[Any]
    scheduled_cached_reqs: Cached
    total_num_scheduled_tokens: int = 0
    finished_req_ids: set[str] = field(default_factory=set)
    scheduled_encoder_inputs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total_num_scheduled_tokens = sum(self.num_scheduled_tokens.values())


def plan(
    decodes: int = 0, prefills: tuple[int, ...] = (), stride: int = 1, seen: int = 100
) -> Plan:
    """A batch of decoding requests with ``seen`` tokens each, and new ones."""
    old = [f"cmpl-{index}" for index in range(decodes)]
    cached = Cached(old, [seen] * decodes, [5] * decodes)
    new = [SimpleNamespace(req_id=f"new-{i}", num_computed_tokens=0) for i in range(len(prefills))]
    scheduled = dict.fromkeys(old, stride)
    scheduled |= {one.req_id: tokens for one, tokens in zip(new, prefills, strict=True)}
    return Plan(scheduled, new, cached)


def vllm_config(**more: Any) -> SimpleNamespace:
    given: dict[str, Any] = {
        "num_speculative_tokens": 0,
        "speculative_config": None,
        "lora_config": None,
        "scheduler_config": SimpleNamespace(
            max_num_seqs=32, max_num_batched_tokens=2048, async_scheduling=False
        ),
        "parallel_config": SimpleNamespace(
            rank=1,
            world_size=2,
            data_parallel_rank=3,
            tensor_parallel_size=2,
            data_parallel_size=1,
            pipeline_parallel_size=1,
        ),
        "model_config": SimpleNamespace(model="tiny", is_encoder_decoder=False),
        "cache_config": SimpleNamespace(num_gpu_blocks=100, block_size=16),
        "compilation_config": SimpleNamespace(
            max_cudagraph_capture_size=32, cudagraph_capture_sizes=list(SIZES), mode=None
        ),
        "compute_hash": lambda: "abc123",
    }
    return SimpleNamespace(**{**given, **more})


def dispatcher_class(version: str) -> type[Any]:
    """``CudagraphDispatcher`` of a version."""

    class CudagraphDispatcher:
        def __init__(self, config: Any) -> None:
            self.vllm_config = config
            self.compilation_config = config.compilation_config
            self.keys_initialized = False
            self.cudagraph_mode = Mode.NONE
            self.cudagraph_keys: dict[Mode, set[Any]] = {Mode.PIECEWISE: set(), Mode.FULL: set()}

        def initialize_cudagraph_keys(self, cudagraph_mode: Mode, stride: int = 1) -> None:
            self.cudagraph_mode = cudagraph_mode
            self.keys_initialized = True
            for keys in self.cudagraph_keys.values():
                keys.clear()
            for size in self.compilation_config.cudagraph_capture_sizes:
                if cudagraph_mode.name in ("PIECEWISE", "FULL_AND_PIECEWISE"):
                    self.cudagraph_keys[Mode.PIECEWISE].add(_key(version, size, None))
                if cudagraph_mode.name.startswith("FULL"):
                    separate = cudagraph_mode.name != "FULL"
                    if not separate or size % stride == 0:
                        self.cudagraph_keys[Mode.FULL].add(
                            _key(version, size, stride if separate else None)
                        )

        def _find(self, tokens: int, uniform: bool) -> tuple[Mode, Any]:
            for mode in (Mode.FULL, Mode.PIECEWISE):
                keys = sorted(self.cudagraph_keys[mode], key=lambda key: key.num_tokens)
                for key in keys:
                    flag = getattr(key, "uniform", getattr(key, "uniform_decode", False))
                    if key.num_tokens >= tokens and (uniform or not flag):
                        return mode, key
            return Mode.NONE, None if version == "0.11" else _plain(version, tokens)

    if version == "0.11":

        def old(self: Any, batch_descriptor: Any) -> tuple[Mode, Any]:
            found: tuple[Mode, Any] = self._find(
                batch_descriptor.num_tokens, batch_descriptor.uniform_decode
            )
            return found

        CudagraphDispatcher.dispatch = old  # type: ignore[attr-defined]
    else:

        def new(
            self: Any, num_tokens: int, uniform_decode: bool = False, has_lora: bool = False
        ) -> tuple[Mode, Any]:
            found: tuple[Mode, Any] = self._find(num_tokens, uniform_decode)
            return found

        CudagraphDispatcher.dispatch = new  # type: ignore[attr-defined]
    return CudagraphDispatcher


def _key(version: str, size: int, stride: int | None) -> Any:
    if version == "0.11":
        return OldDescriptor(size, stride is not None)
    reqs = size // stride if stride else None
    if version == "0.13":
        return MiddleDescriptor(size, reqs, stride is not None)
    return NewDescriptor(size, reqs, stride is not None)


def _plain(version: str, tokens: int) -> Any:
    return MiddleDescriptor(tokens) if version == "0.13" else NewDescriptor(tokens)


def v1_modules(version: str) -> tuple[ModuleType, ModuleType]:
    """The dispatcher's and the runner's module of a version."""
    dispatchers = ModuleType("vllm.v1.cudagraph_dispatcher")
    dispatchers.CudagraphDispatcher = dispatcher_class(version)  # type: ignore[attr-defined]
    runners = ModuleType("vllm.v1.worker.gpu_model_runner")
    base = _OldRunner if version == "0.11" else _NewRunner
    # A class of its own for each test, because the hooks patch it.
    names = {name: value for name, value in vars(base).items() if name != "__dict__"}
    runner = type("GPUModelRunner", base.__bases__, names)
    if version in ("0.11", "0.13"):
        del runner._warmup_and_capture  # type: ignore[attr-defined]
    runners.GPUModelRunner = runner  # type: ignore[attr-defined]
    runners.AsyncGPUModelRunnerOutput = type(  # type: ignore[attr-defined]
        "AsyncGPUModelRunnerOutput",
        (),
        {
            "__init__": lambda self, output: setattr(self, "output", output),
            "get_output": lambda self: self.output,
        },
    )
    return dispatchers, runners


class _Runner:
    """What the runners of all versions share."""

    def __init__(self, dispatcher: Any, config: Any, stride: int = 1) -> None:
        self.vllm_config = config
        self.model_config = config.model_config
        self.uniform_decode_query_len = stride
        self.use_async_scheduling = bool(config.scheduler_config.async_scheduling)
        self.cudagraph_dispatcher = dispatcher
        self.device = SimpleNamespace(type="cpu")
        self.input_batch = SimpleNamespace(lora_id_to_lora_request={})
        self.wrap: Any = lambda output: output
        self.fail = False

    def _forward(self) -> None:
        if self.fail:
            raise RuntimeError("the model")


class _NewRunner(_Runner):
    """0.13 and later."""

    def __init__(self, dispatcher: Any, config: Any, stride: int = 1) -> None:
        _Runner.__init__(self, dispatcher, config, stride)
        self.drafts = 0
        self.state: Any = None

    def _determine_batch_execution_and_padding(
        self,
        num_tokens: int,
        num_reqs: int,
        num_scheduled_tokens_np: Any,
        max_num_scheduled_tokens: int,
        use_cascade_attn: bool = False,
        allow_microbatching: bool = True,
        force_eager: bool = False,
        force_uniform_decode: bool | None = None,
    ) -> tuple[Any, ...]:
        stride = self.uniform_decode_query_len
        uniform = max_num_scheduled_tokens == stride and num_tokens == stride * num_reqs
        if force_uniform_decode is not None:
            uniform = force_uniform_decode
        if force_eager:
            key = _plain("0.13", num_tokens)
            return Mode.NONE, key, False, None, None
        mode, key = self.cudagraph_dispatcher.dispatch(
            num_tokens=num_tokens, uniform_decode=uniform
        )
        return mode, key, False, None, None

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if not scheduler_output.total_num_scheduled_tokens:
            return "empty"
        self.seen = self._determine_batch_execution_and_padding(
            num_tokens=scheduler_output.total_num_scheduled_tokens,
            num_reqs=len(scheduler_output.num_scheduled_tokens),
            num_scheduled_tokens_np=None,
            max_num_scheduled_tokens=max(scheduler_output.num_scheduled_tokens.values()),
            use_cascade_attn=False,
        )
        self._forward()
        self.state = len(scheduler_output.num_scheduled_tokens)
        return None

    def sample_tokens(self, grammar_output: Any) -> Any:
        output = SimpleNamespace(sampled_token_ids=[[7]] * self.state)
        return self.wrap(output)

    def _dummy_run(
        self,
        num_tokens: int,
        cudagraph_runtime_mode: Any = None,
        force_attention: bool = False,
        uniform_decode: bool = False,
        is_profile: bool = False,
        is_graph_capturing: bool = False,
    ) -> str:
        self._determine_batch_execution_and_padding(
            num_tokens=num_tokens,
            num_reqs=num_tokens,
            num_scheduled_tokens_np=None,
            max_num_scheduled_tokens=1,
            force_eager=is_profile or cudagraph_runtime_mode is Mode.NONE,
            force_uniform_decode=uniform_decode,
        )
        return "dummy"

    def _warmup_and_capture(self, desc: Any, cudagraph_runtime_mode: Any) -> None:
        self._dummy_run(desc.num_tokens, cudagraph_runtime_mode=Mode.NONE)
        self._dummy_run(
            desc.num_tokens,
            cudagraph_runtime_mode=cudagraph_runtime_mode,
            uniform_decode=desc.uniform,
            is_graph_capturing=True,
        )

    def _capture_cudagraphs(self, descs: Any, cudagraph_runtime_mode: Any) -> None:
        for desc in descs:
            if hasattr(self, "_warmup_and_capture"):
                self._warmup_and_capture(desc, cudagraph_runtime_mode)
            else:
                uniform = desc.uniform
                self._dummy_run(desc.num_tokens, Mode.NONE, uniform_decode=uniform)
                self._dummy_run(desc.num_tokens, cudagraph_runtime_mode, uniform_decode=uniform)

    def capture_model(self) -> int:
        for mode, keys in self.cudagraph_dispatcher.cudagraph_keys.items():
            ordered = sorted(keys, key=lambda key: -key.num_tokens)
            self._capture_cudagraphs(ordered, mode)
        return 1234

    def profile_cudagraph_memory(self) -> int:
        keys = self.cudagraph_dispatcher.cudagraph_keys[Mode.FULL]
        self._warmup_and_capture(max(keys, key=lambda key: key.num_tokens), Mode.FULL)
        return 99


class _OldRunner(_Runner):
    """0.11: pads itself, asks the dispatcher itself, and samples in ``execute_model``."""

    def __init__(self, dispatcher: Any, config: Any, stride: int = 1) -> None:
        _Runner.__init__(self, dispatcher, config, stride)

    def _padded(self, tokens: int) -> int:
        sizes = self.cudagraph_dispatcher.compilation_config.cudagraph_capture_sizes
        return next((size for size in sizes if size >= tokens), tokens)

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        tokens = scheduler_output.total_num_scheduled_tokens
        if not tokens:
            return "empty"
        longest = max(scheduler_output.num_scheduled_tokens.values())
        reqs = len(scheduler_output.num_scheduled_tokens)
        uniform = longest == self.uniform_decode_query_len and tokens == reqs * longest
        asked = OldDescriptor(self._padded(tokens), uniform)
        self.seen = self.cudagraph_dispatcher.dispatch(asked)
        self._forward()
        return SimpleNamespace(sampled_token_ids=[[7]] * reqs)

    def _dummy_run(
        self,
        num_tokens: int,
        cudagraph_runtime_mode: Any = None,
        uniform_decode: bool = False,
        is_profile: bool = False,
    ) -> str:
        if not is_profile:
            self.cudagraph_dispatcher.dispatch(
                OldDescriptor(self._padded(num_tokens), uniform_decode)
            )
        return "dummy"

    def _warmup_and_capture(self) -> None: ...

    def _capture_cudagraphs(self, compilation_cases: Any, mode: Any, uniform: bool) -> None:
        for size in compilation_cases:
            self._dummy_run(size, cudagraph_runtime_mode=Mode.NONE, uniform_decode=uniform)
            self._dummy_run(size, cudagraph_runtime_mode=mode, uniform_decode=uniform)

    def capture_model(self) -> int:
        for mode, keys in self.cudagraph_dispatcher.cudagraph_keys.items():
            sizes = sorted((key.num_tokens for key in keys), reverse=True)
            uniform = any(key.uniform_decode for key in keys)
            self._capture_cudagraphs(sizes, mode, uniform)
        return 1234


def v2_descriptor(manager: Any, reqs: int, tokens: int, count: int | None) -> ExecutionDescriptor:
    """What a manager's dispatch returns."""
    for mode in (Mode.FULL, Mode.PIECEWISE):
        for key in reversed(manager._capture_descs.get(mode, [])):
            fits = key.num_tokens >= tokens and key.uniform_token_count in (None, count)
            if manager._graphs_captured and fits and (key.num_reqs or reqs) >= reqs:
                return key
    return ExecutionDescriptor(Mode.NONE, tokens, reqs)


class Manager:
    """``CudaGraphManager`` of 0.25 and later."""

    def __init__(self, mode: Mode = Mode.FULL_AND_PIECEWISE, stride: int = 1) -> None:
        self.cudagraph_mode = 0 if mode is Mode.NONE else mode
        self.graphs: dict[Any, Any] = {}
        self._graphs_captured = True
        self._capture_descs: dict[Mode, list[ExecutionDescriptor]] = {}
        ordered = sorted(SIZES, reverse=True)
        if "PIECEWISE" in mode.name:
            self._capture_descs[Mode.PIECEWISE] = [
                ExecutionDescriptor(Mode.PIECEWISE, size, None) for size in ordered
            ]
        if mode.name.startswith("FULL"):
            self._capture_descs[Mode.FULL] = [
                ExecutionDescriptor(Mode.FULL, size, size // stride, stride)
                for size in ordered
                if size % stride == 0
            ]

    def dispatch(
        self,
        num_reqs: int,
        num_tokens: int,
        uniform_token_count: int | None,
        num_active_loras: int = 0,
    ) -> ExecutionDescriptor:
        return v2_descriptor(self, num_reqs, num_tokens, uniform_token_count)

    def capture(self, create_forward_fn: Any, progress_bar_desc: str = "") -> None:
        for mode in (Mode.PIECEWISE, Mode.FULL):
            for desc in self._capture_descs.get(mode, []):
                create_forward_fn(desc, warmup=True)(Mode.NONE)
                if mode is Mode.PIECEWISE:
                    continue
                create_forward_fn(desc, warmup=False)(Mode.NONE)
        self._graphs_captured = True


def peer_eager(desc: ExecutionDescriptor, tokens: int, reqs: int) -> ExecutionDescriptor:
    """What becomes of a descriptor when another rank asks for eager."""
    return replace(
        desc, cg_mode=Mode.NONE, num_tokens=tokens, num_reqs=reqs, uniform_token_count=None
    )
