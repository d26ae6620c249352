"""A plugin for tests: the real decode runner of SGLang on a CPU, a count of its own, and faults.

On a CPU the engine has another graph runner. Here the one for GPUs takes its place, over a backend
that runs the model again where a GPU would replay a graph, so that exact, padded and eager steps
all occur and the tokens are those of the model. What runs is counted in the same process, past the
collector, into ``GDTEST_OUT``. ``GDTEST_FAULTS`` breaks the collector's hooks on purpose.
"""

import contextlib
import json
import os
import sys
import time
import types
from pathlib import Path


def register():
    _take_the_gpus_runner()
    if os.environ.get("GDTEST_OUT"):
        _count()
    if os.environ.get("GDTEST_FAULTS"):
        _break_hooks()


def _take_the_gpus_runner():
    import sglang.srt.model_executor.model_runner_components.cuda_graph_setup as setup
    import sglang.srt.model_executor.runner.decode_cuda_graph_runner as decode
    import torch
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.model_executor.runner_backend.base_cuda_graph_backend import (
        BaseCudaGraphBackend,
    )

    class ReexecutingBackend(BaseCudaGraphBackend):
        def __init__(self, runner):
            self._graphs = {}
            self._cuda_graph_runner = runner

        @contextlib.contextmanager
        def capture_session(self, stream):
            yield

        def capture_one(self, shape_key, forward_fn, capture_inputs=None, post_warmup_hook=None):
            forward_fn()
            self._graphs[shape_key] = forward_fn

        def can_run(self, forward_batch, shape_key):
            return shape_key in self._graphs

        @contextlib.contextmanager
        def replay_session(self):
            yield

        def replay(self, shape_key, static_forward_batch, **kwargs):
            return self._graphs[shape_key]()

        def cleanup(self):
            self._graphs.clear()

    @contextlib.contextmanager
    def no_capture(stream=None):
        yield types.SimpleNamespace(stream=None)

    @contextlib.contextmanager
    def as_it_is(model, enable, num_tokens=None, tp_group=None):
        yield model.forward

    class SharedOutput:
        def get_logits_buffer(self, vocab, rows=None, **kwargs):
            return torch.zeros((rows or 64, vocab), dtype=torch.float32)

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **kwargs: None

    decode.resolve_decode_backend = ReexecutingBackend
    decode.graph_capture = no_capture
    decode.get_or_create_global_graph_capture_stream = lambda: None
    decode.set_torch_compile_config = lambda: None
    decode.torch_compile_decoration = types.SimpleNamespace(patch_model=as_it_is)
    runner = decode.DecodeCudaGraphRunner
    runner._record_in_graph_metadata_prep_done = lambda self: None
    runner._publish_read_done = lambda self, in_graph: None
    attention = TorchNativeAttnBackend
    attention.init_cuda_graph_state = lambda self, requests, tokens: None
    attention.get_cuda_graph_seq_len_fill_value = lambda self: 1
    attention.init_forward_metadata_out_graph = lambda self, batch, in_capture=False: None
    attention.init_forward_metadata_in_graph = lambda self, batch: None
    setup.CPUGraphRunner = runner
    setup.GraphSharedOutput = types.SimpleNamespace(
        create_for_model_runner=lambda model_runner: SharedOutput()
    )


def _count():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    out = Path(os.environ["GDTEST_OUT"])

    def tell(**what):
        what["hooked"] = sorted(_hooked())
        with out.open("a") as file:
            file.write(json.dumps({"pid": os.getpid(), "t_ns": time.time_ns(), **what}) + "\n")

    def execute(original, self, batch, *args, **kwargs):
        output = original(self, batch, *args, **kwargs)
        tell(ran="graph", raw=self.raw_bs, bucket=self.bs, mode=batch.forward_mode.name)
        return output

    def eager(original, self, batch, *args, **kwargs):
        mode = batch.forward_mode.name
        size = batch.batch_size if mode == "DECODE" else int(batch.input_ids.shape[0])
        output = original(self, batch, *args, **kwargs)
        tell(ran="eager", raw=size, bucket=None, mode=mode)
        return output

    place = "sglang.srt.model_executor.runner."
    HookRegistry.register(
        place + "decode_cuda_graph_runner.DecodeCudaGraphRunner.execute", execute, HookType.AROUND
    )
    HookRegistry.register(place + "eager_runner.EagerRunner.execute", eager, HookType.AROUND)


def _hooked():
    """Yield the engine's methods that the collector has replaced."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("sglang.srt."):
            for owner in tuple(vars(module).values()):
                if isinstance(owner, type) and owner.__module__ == name:
                    for method, value in tuple(vars(owner).items()):
                        if "__graphdiag_original__" in getattr(value, "__dict__", ()):
                            yield f"{owner.__name__}.{method}"


def _break_hooks():
    from graphdiag_collectors import sglang, sglang_captures, sglang_forward, sglang_runners

    def broken(*args, **kwargs):
        raise RuntimeError("broken on purpose")

    sglang_forward._ask = broken
    sglang_runners._refused = broken
    sglang_captures._tell = broken
    sglang.register()
    sglang.register()
