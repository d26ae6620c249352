"""What the real SGLang makes of bucket lists; a line of JSON for the cases given as JSON.

Run by the Python that has SGLang. The real functions are called over the few fields they read.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from types import SimpleNamespace
from typing import Any


def listed(case: dict[str, Any]) -> list[int] | str:
    """Return the sizes that ``case["buckets"]`` ends up as, or the kind of error it is."""
    import sglang.srt.model_executor.runner.base_cuda_graph_runner as runners
    from sglang.srt.utils import common

    graph = SimpleNamespace(
        cuda_graph_config=SimpleNamespace(decode=SimpleNamespace(bs=case["buckets"])),
        torch_compile_max_bs=32,
    )
    overlap = SimpleNamespace(enable_two_batch_overlap=False)
    execution = SimpleNamespace(graph=graph, overlap=overlap)
    parallel = SimpleNamespace(attn_tp_size=case["ranks"], attn_cp_size=1)
    flags = SimpleNamespace(capture=SimpleNamespace(enable_torch_compile=False))
    for module in (runners, common):
        module.get_exec = lambda: execution
        module.get_flags = lambda: flags
        module.get_parallel = lambda: parallel
    runners.DllmConfig = SimpleNamespace(from_server_args=lambda _: None)
    model_runner = SimpleNamespace(
        req_to_token_pool=SimpleNamespace(size=case["pool"]), server_args=None
    )
    try:
        return runners.get_batch_sizes_to_capture(
            model_runner, gathered_buffer_required=case["ranks"] > 1
        )[0]
    except (AssertionError, ValueError) as error:
        return type(error).__name__


def parsed(flag: str) -> list[Any] | None:
    """Return the decode and prefill sizes read from ``flag``; None where it is rejected."""
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    try:
        found = parser.parse_args(["--model-path", "x", *shlex.split(flag)])
    except SystemExit:
        return None
    return [found.cuda_graph_bs_decode, found.cuda_graph_bs_prefill]


def main() -> None:
    given = json.loads(sys.argv[1])
    flags = [parsed(flag) for flag in given["flags"]]  # before the stand-ins
    print(json.dumps({"lists": [listed(case) for case in given["cases"]], "flags": flags}))


if __name__ == "__main__":
    main()
