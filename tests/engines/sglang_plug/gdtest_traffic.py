"""Runs the engine on a tiny model and prints its tokens.

Arguments: MODEL [endless|move PATH|obey FOLDER]. With ``obey`` it does what the files ``do-0``,
``do-1``, … in the folder say, one after the other, and writes ``done-0``, … after each.
"""

import json
import random
import sys
import time
from pathlib import Path

BATCHES = (1, 2, 3, 4, 6, 9, 12)


def generate(engine, numbers, seed, length):
    dice = random.Random(seed)
    tokens = []
    for number in numbers:
        prompts = [[dice.randint(3, 500) for _ in range(dice.randint(2, 9))] for _ in range(number)]
        limit = {"max_new_tokens": length, "temperature": 0, "ignore_eos": True}
        answers = engine.generate(input_ids=prompts, sampling_params=limit)
        tokens.append([answer["output_ids"] for answer in answers])
    return tokens


def obey(engine, folder):
    tokens = []
    for number in range(1000):
        order = folder / f"do-{number}"
        while not order.exists():
            time.sleep(0.05)
        what = order.read_text()
        if what == "end":
            return tokens
        if what == "generate":
            tokens.append(generate(engine, BATCHES, 1, 6))
        elif what == "start_profile":
            engine.start_profile(output_dir=str(folder), activities=["CPU"], with_stack=False)
        else:
            engine.stop_profile()
        (folder / f"done-{number}").touch()
    return tokens


def main():
    import sglang

    model, *task = sys.argv[1:]
    engine = sglang.Engine(
        model_path=model,
        device="cpu",
        skip_tokenizer_init=True,
        attention_backend="torch_native",
        sampling_backend="pytorch",
        dtype="float32",
        mem_fraction_static=0.5,  # of what other processes leave; max_total_tokens decides
        max_total_tokens=4096,
        max_running_requests=16,
        context_length=256,
        log_level="warning",
        enable_torch_compile=True,
        cuda_graph_bs_decode=[1, 2, 4, 8],
        disable_radix_cache=task[:1] == ["obey"],  # the same prompts again are the same steps
    )
    tokens = [] if task[:1] == ["obey"] else generate(engine, BATCHES, 1, 6)
    if task[:1] == ["obey"]:
        print("READY", flush=True)
        tokens = obey(engine, Path(task[1]))
    if task[:1] == ["endless"]:
        print("GENERATING", flush=True)
        generate(engine, (3,) * 1000, 2, 200)
    if task[:1] == ["move"]:
        time.sleep(1.5)
        Path(task[1]).rename(task[1] + ".moved")
        tokens += generate(engine, BATCHES, 2, 6)
    engine.shutdown()
    print("TOKENS", json.dumps(tokens), flush=True)


if __name__ == "__main__":
    main()
