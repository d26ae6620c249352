"""What the vLLM collector costs the real engine on a CPU: the second half of ``vllm_hook.py``.

The model is so small that a step takes a few ms, on one OpenMP thread. Blocks of steps with all
per-step hooks and with none alternate (on, off, off, on, …) and are compared in neighbouring pairs,
because the machine's speed changes from second to second by more than the difference: by wall time,
and by CPU time of the engine's thread, with all CPU time of the writer's thread on top.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from statistics import median
from time import perf_counter_ns

ROUNDS = 40
REQUESTS, TOKENS = 16, 200
BLOCK = 8
"""Steps of a block; the first one is no measure."""
DETERMINE = "_determine_batch_execution_and_padding"


def main(folder: str) -> None:
    """Serve the same requests by the real engine with the hooks on and off, in turns."""
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_NO_USAGE_STATS="1",
        HF_HUB_OFFLINE="1",
    )
    import random
    from time import thread_time_ns

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from graphdiag_collectors import session
    from graphdiag_collectors import vllm as collector

    torch.set_num_threads(1)
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
    torch.set_num_threads(1)
    rng = random.Random(0)
    prompts = [
        {"prompt_token_ids": [rng.randint(3, 500) for _ in range(8)]} for _ in range(REQUESTS)
    ]
    wanted = SamplingParams(max_tokens=TOKENS, ignore_eos=True, detokenize=False, temperature=0)

    assert collector.STATE is not None
    names = ("execute_model", "sample_tokens", DETERMINE)
    owner = gpu_model_runner.GPUModelRunner
    engine = llm.llm_engine
    executor = engine.engine_core.engine_core.model_executor
    runner = executor.driver_worker.worker.model_runner
    # On the instance: a class that changes loses what the interpreter has learned about it.
    hooked = {name: vars(owner)[name].__get__(runner) for name in names}
    plain = {name: vars(owner)[name].__wrapped__.__get__(runner) for name in names}
    # Blocks in their order: wall and CPU ns of the engine's thread, a step.
    spent: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    # The writer wakes twice a second and takes as long for many rows as for few: its time is
    # shared by all steps that ran meanwhile, recorded or not.
    ran, writer = 0, 0.0
    load = []
    for again in range(ROUNDS + 1):
        for index, prompt in enumerate(prompts):
            engine.add_request(f"{again}-{index}", prompt, wanted)
        for _ in range(BLOCK):  # the prompts, and what the first steps after them settle
            engine.step()
            ran += 1
        recorder = session.current()
        assert recorder is not None
        clock = time.pthread_getcpuclockid(recorder._writer._thread.ident)  # type: ignore[arg-type]
        if again == 1:  # the first round is no measure
            writer, ran = -time.clock_gettime(clock), 0
        for block in range((TOKENS - 2 * BLOCK) // BLOCK // 4 * 4):
            on = block % 4 in (0, 3)
            for name, function in (hooked if on else plain).items():
                setattr(runner, name, function)
            engine.step()
            cpu, wall = thread_time_ns(), perf_counter_ns()
            for _ in range(BLOCK - 1):
                engine.step()
            took = perf_counter_ns() - wall, thread_time_ns() - cpu
            if again:
                ran += BLOCK
                spent[on].append((took[0] / (BLOCK - 1), took[1] / (BLOCK - 1)))
        load.append(os.getloadavg()[0])
        for name in names:
            delattr(runner, name)
        while engine.has_unfinished_requests():
            engine.step()
            ran += 1
    time.sleep(1)
    writer += time.clock_gettime(clock)
    base = [median(column) for column in zip(*spent[False], strict=True)]
    added = 1e9 * writer / ran
    found = {
        "wall": _interval([(one[0], two[0]) for one, two in _pairs(spent)]),
        "cpu": _interval([(one[1] + added, two[1]) for one, two in _pairs(spent)]),
        "writer": added / 1e3,
        "step": base[0] / 1e6,
        "pairs": len(spent[True]),
        "block": BLOCK - 1,
        "load": f"{min(load):.1f} to {max(load):.1f}",
    }
    print(json.dumps(found))


def _pairs(
    spent: dict[bool, list[tuple[float, float]]],
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return neighbouring blocks: on, off, off, on."""
    return list(zip(spent[True], spent[False], strict=True))


def _interval(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the median loss in % over pairs, and its 95 % interval by bootstrap."""
    import random

    rng = random.Random(0)
    ratios = [one / other for one, other in pairs]
    draws = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return tuple(100 * (ratio - 1) for ratio in (median(ratios), draws[50], draws[1949]))  # type: ignore[return-value]


if __name__ == "__main__":
    main(sys.argv[2])
