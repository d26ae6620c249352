"""What the real vLLM makes of bucket lists; a line of JSON for the cases given as JSON.

Run by the Python that has vLLM. A CPU has no graphs, so its configuration would clear the list: the
real methods are called over the few fields they read.
"""

from __future__ import annotations

import json
import shlex
import sys
from types import SimpleNamespace
from typing import Any


def listed(case: dict[str, Any]) -> list[int] | str:
    """Return the sizes that ``case["buckets"]`` ends up as, or the kind of error it is."""
    from vllm.config import CompilationConfig
    from vllm.config.vllm import VllmConfig

    tokens = 1 + case["speculative_tokens"]
    compilation = CompilationConfig(
        mode=3, cudagraph_mode="FULL_AND_PIECEWISE", cudagraph_capture_sizes=case["buckets"]
    )
    config = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False),
        compilation_config=compilation,
        uniform_decode_query_len=tokens,
        num_speculative_tokens=case["speculative_tokens"],
        speculative_config=None,
        scheduler_config=SimpleNamespace(
            max_num_seqs=64, max_num_batched_tokens=case["token_budget"]
        ),
        performance_mode="balanced",
    )
    try:
        VllmConfig._set_cudagraph_sizes(config)
        compilation.adjust_cudagraph_sizes_for_spec_decode(tokens)
    except (AssertionError, ValueError) as error:
        return type(error).__name__
    return list(compilation.cudagraph_capture_sizes)


def parsed(flag: str) -> list[int]:
    """Return the sizes that the command line reads from ``flag``."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    found = parser.parse_args(shlex.split(flag))
    return list(found.cudagraph_capture_sizes or found.compilation_config.cudagraph_capture_sizes)


def main() -> None:
    given = json.loads(sys.argv[1])
    print(
        json.dumps(
            {
                "lists": [listed(case) for case in given["cases"]],
                "flags": [parsed(flag) for flag in given["flags"]],
            }
        )
    )


if __name__ == "__main__":
    main()
