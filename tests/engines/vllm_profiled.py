"""Serves the same requests by the real vLLM again and again, until a file is there.

``vllm_profiled.py MODEL FILE`` prints ``ready`` when it serves, and at the end one line of JSON:
how often all were served, and the greedy tokens of the first time and of all others.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from vllm_child import generate


def main() -> None:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    llm = LLM(
        model=sys.argv[1],
        skip_tokenizer_init=True,
        max_num_seqs=48,
        max_model_len=256,
        max_num_batched_tokens=256,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
    )
    first = generate(llm, 8)
    print("ready", flush=True)
    rounds = 1
    same = True
    while not Path(sys.argv[2]).exists():
        same = generate(llm, 8) == first and same
        rounds += 1
    print(json.dumps({"rounds": rounds, "same": same, "tokens": first}), flush=True)


if __name__ == "__main__":
    main()
