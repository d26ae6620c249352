"""Runs the real vLLM with what makes steps differ, and notes each step apart from the collector.

``vllm_features.py MODEL WHAT FOLDER`` prints one line of JSON: the tokens with and without a
recording, and of each step what the scheduler planned and the model returned.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

Found = dict[str, Any]
OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "max_model_len": 256,
    "dtype": "float32",
    "enforce_eager": True,
    "enable_prefix_caching": False,
}


class Watched:
    """A real engine in this process, and what each of its steps was."""

    def __init__(self, model: str, **options: Any) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM
        from vllm_child import runner_of

        self.llm = LLM(model=model, **{**OPTIONS, **options})
        self.steps: list[Found] = []
        owner = type(runner_of(self.llm)).__mro__[1]
        execute, sample = owner.execute_model, owner.sample_tokens
        steps = self.steps

        def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            plan = scheduler_output
            counts = list(plan.num_scheduled_tokens.values())
            if counts:
                steps.append(
                    {
                        "requested": sum(counts),
                        "num_reqs": len(counts),
                        "query_len": counts[0] if len(set(counts)) == 1 else None,
                        "drafts": sum(map(len, plan.scheduled_spec_decode_tokens.values())),
                        "new": len(plan.scheduled_new_reqs),
                        "resumed": len(plan.scheduled_cached_reqs.resumed_req_ids),
                        "preempted": len(plan.preempted_req_ids or ()),
                    }
                )
            result = execute(runner, scheduler_output, *args, **kwargs)
            if counts:
                requests = runner.requests
                adapters = {
                    requests[name].lora_request.lora_int_id
                    for name in plan.num_scheduled_tokens
                    if requests[name].lora_request is not None
                }
                steps[-1]["loras"] = len(adapters)
            return result

        def sample_tokens(runner: Any, *args: Any, **kwargs: Any) -> Any:
            result = sample(runner, *args, **kwargs)
            if hasattr(result, "get_output"):
                promised[id(result)] = steps[-1]
            else:
                steps[-1]["tokens_out"] = sum(map(len, result.sampled_token_ids))
            return result

        promise = sys.modules[owner.__module__].AsyncGPUModelRunnerOutput
        promised: dict[int, Found] = {}
        fetch = promise.get_output

        def get_output(output: Any) -> Any:
            result = fetch(output)
            step = promised.pop(id(output))
            step["tokens_out"] = sum(map(len, result.sampled_token_ids))
            step["promised"] = True
            return result

        owner.execute_model = execute_model
        owner.sample_tokens = sample_tokens
        promise.get_output = get_output

    def generate(
        self, prompts: list[list[int]], lengths: list[int], loras: list[Any] | None = None
    ) -> list[list[int]]:
        """Return greedy tokens; the prompts arrive together."""
        from vllm import SamplingParams

        outputs = self.llm.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            [
                SamplingParams(max_tokens=n, ignore_eos=True, detokenize=False, temperature=0)
                for n in lengths
            ],
            use_tqdm=False,
            lora_request=loras,
        )
        return [list(output.outputs[0].token_ids) for output in outputs]

    def with_and_without(self, trace: Path, work: Callable[[], Any]) -> Found:
        """Do the same work without and with a recording."""
        from graphdiag_collectors import control

        plain = work()
        self.steps.clear()
        told = dict(control.answer({"command": "attach", "trace": str(trace)}))
        assert told["ok"], told
        recorded = work()
        told = dict(control.answer({"command": "detach"}))
        return {
            "same": plain == recorded,
            "steps": list(self.steps),
            "hooks": told["collectors"]["vllm"],
            "dropped": told["dropped"],
        }


def ngram(model: str, folder: Path) -> Found:
    """Drafts looked up in the prompt: three a request and step, where there are any."""
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    watched = Watched(model, max_num_seqs=16, speculative_config=config)
    rng = random.Random(1)
    prompts = [[rng.randint(3, 500) for _ in range(6)] * 4 for _ in range(12)]
    lengths = [rng.randint(10, 60) for _ in prompts]
    return watched.with_and_without(
        folder / "ngram.parquet",
        lambda: [
            watched.generate(prompts, lengths),
            watched.generate(prompts[:1], [100]),  # repeats itself, so that drafts are found
        ],
    )


def eagle(model: str, folder: Path) -> Found:
    """Drafts of a random EAGLE head, two a request and step, and graphs for three tokens each."""
    make_head(Path(model), folder / "head")
    config = {"method": "eagle", "model": str(folder / "head"), "num_speculative_tokens": 2}
    watched = Watched(model, max_num_seqs=16, speculative_config=config)
    force(watched.llm, [3, 6, 12, 24, 48], 3)
    rng = random.Random(3)
    prompts = [[rng.randint(3, 500) for _ in range(rng.randint(4, 30))] for _ in range(10)]
    lengths = [rng.randint(10, 40) for _ in prompts]
    return watched.with_and_without(
        folder / "eagle.parquet", lambda: watched.generate(prompts, lengths)
    )


def make_head(model: Path, folder: Path) -> None:
    """Write an EAGLE head of one layer with random weights."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    config = json.loads((model / "config.json").read_text())
    size, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {
        "fc": (size, 2 * size),
        **{f"layers.0.self_attn.{name}_proj": (size, size) for name in "qkvo"},
        "layers.0.mlp.gate_proj": (inner, size),
        "layers.0.mlp.up_proj": (inner, size),
        "layers.0.mlp.down_proj": (size, inner),
    }
    generator = torch.Generator().manual_seed(0)
    weights = {
        f"{name}.weight": torch.randn(shape, generator=generator) / 8
        for name, shape in shapes.items()
    }
    weights["layers.0.post_attention_layernorm.weight"] = torch.ones(size)
    save_file(weights, folder / "model.safetensors")
    config["num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))


def deferred(model: str, folder: Path) -> Found:
    """Schedule asynchronously, as vLLM does on a GPU; its CPU platform switches that off."""
    import torch
    from vllm.platforms.cpu import CpuPlatform

    class Nothing:
        """Stands in for CUDA's events and streams: on a CPU there is nothing to wait for."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def record(self, *_: Any) -> None:
            pass

        synchronize = wait_stream = record

    torch.cuda.Event = torch.cuda.current_stream = Nothing  # type: ignore[assignment,misc]
    torch.cuda.stream = lambda _: nullcontext()  # type: ignore[assignment,misc]
    check = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        check(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    watched = Watched(model, max_num_seqs=16, async_scheduling=True)
    rng = random.Random(4)
    prompts = [[rng.randint(3, 500) for _ in range(rng.randint(4, 30))] for _ in range(20)]
    lengths = [rng.randint(4, 40) for _ in prompts]
    return watched.with_and_without(
        folder / "deferred.parquet", lambda: watched.generate(prompts, lengths)
    )


def lora(model: str, folder: Path) -> Found:
    """Two adapters in one batch, prompts in chunks, and a cache too small for all requests.

    With a graph of every size, as vLLM's CPU kernels for adapters take no padding. Requests without
    an adapter are alone: where they share a batch with adapters, those kernels give them other
    tokens each time.
    """
    from vllm.lora.request import LoRARequest

    adapters = [folder / name for name in ("one", "two")]
    for seed, adapter in enumerate(adapters):
        make_adapter(Path(model), adapter, seed)
    watched = Watched(
        model,
        max_num_seqs=16,
        max_num_batched_tokens=32,
        max_model_len=128,
        num_gpu_blocks_override=6,
        block_size=32,
        enable_lora=True,
        max_loras=2,
        max_lora_rank=8,
    )
    requests = [LoRARequest(a.name, i + 1, str(a)) for i, a in enumerate(adapters)]
    rng = random.Random(2)
    prompts = [[rng.randint(3, 500) for _ in range(rng.randint(10, 50))] for _ in range(10)]
    lengths = [rng.randint(10, 60) for _ in prompts]
    chosen = [requests[i % 2] for i in range(len(prompts))]
    force(watched.llm, list(range(1, 33)), 1)
    return watched.with_and_without(
        folder / "lora.parquet",
        lambda: [
            watched.generate(prompts, lengths, chosen),
            watched.generate(prompts[:3], lengths[:3]),
        ],
    )


def force(llm: Any, sizes: list[int], stride: int) -> None:
    """Make the CPU engine dispatch as if it had captured graphs of ``sizes``."""
    from vllm.config import CUDAGraphMode
    from vllm_child import runner_of

    runner = runner_of(llm)
    runner.compilation_config.cudagraph_capture_sizes = sizes
    runner.compilation_config.max_cudagraph_capture_size = sizes[-1]
    dispatcher = runner.cudagraph_dispatcher
    dispatcher.cudagraph_keys = {CUDAGraphMode.PIECEWISE: set(), CUDAGraphMode.FULL: set()}
    dispatcher.initialize_cudagraph_keys(CUDAGraphMode.FULL_AND_PIECEWISE, stride)


def make_adapter(model: Path, folder: Path, seed: int) -> None:
    """Write a random adapter of rank 8 for the attention of the tiny model."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    size = json.loads((model / "config.json").read_text())["hidden_size"]
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(2):
        for name in ("q_proj", "v_proj"):
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(8, size, generator=generator)
            weights[f"{prefix}.lora_B.weight"] = torch.randn(size, 8, generator=generator)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 8,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


def main() -> None:
    model, what, folder = sys.argv[1:]
    works = {"ngram": ngram, "eagle": eagle, "lora": lora, "deferred": deferred}
    print(json.dumps(works[what](model, Path(folder))))


if __name__ == "__main__":
    main()
