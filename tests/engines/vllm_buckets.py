"""Serves the same requests with graphs of given sizes, recorded from its first step.

``vllm_buckets.py MODEL SIZES ROUNDS`` prints a line of JSON: the tokens of each round.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    model, sizes, rounds = sys.argv[1:4]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM
    from vllm_child import generate
    from vllm_features import force

    llm = LLM(
        model=model,
        skip_tokenizer_init=True,
        max_num_seqs=256,  # so that every size may have a full graph
        max_model_len=256,
        max_num_batched_tokens=256,
        dtype="float32",
        enforce_eager=True,
        enable_prefix_caching=False,
    )
    force(llm, [int(size) for size in sizes.split(",")], 1)
    print(json.dumps({"tokens": [generate(llm, seed=seed) for seed in range(int(rounds))]}))


if __name__ == "__main__":
    main()
