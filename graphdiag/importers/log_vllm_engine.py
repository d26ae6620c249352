"""What a vLLM log has told of the engine so far: its graph mode, its sizes and its limits."""

from __future__ import annotations

import re

from graphdiag.importers import log_values as values
from graphdiag.importers.log_run import Run

_VERSION = re.compile(r"engine \(v([^)\s]+)\)|server version (\S+)")
_MODE_NAME = re.compile(r"NONE|FULL_AND_PIECEWISE|FULL_DECODE_ONLY|PIECEWISE|FULL")
_NUMBERED = {
    "0": "NONE",
    "1": "PIECEWISE",
    "2": "FULL",
    "2,0": "FULL_DECODE_ONLY",
    "2,1": "FULL_AND_PIECEWISE",
}
_RESOLVED = re.compile(r"setting cudagraph_mode=(?:CUDAGraphMode\.)?(\w+)")
_TRUNCATED = re.compile(r"Truncating max_cudagraph_capture_size to (\d{1,9})")
_OVERRIDDEN = re.compile(r"is overridden by config (.*)")
_HEADER_MODE = re.compile(r"- Mode: (?:CUDAGraphMode\.)?(\w+)")
_HEADER_SIZES = re.compile(r"- Capture sizes: (\[[^\]]*\])")
_KV = re.compile(r"KV cache size: ([\d,]{1,15}) tokens")
_BUDGET = re.compile(r"max_num_batched_tokens=(\d{1,9})")
_EAGER = re.compile(
    r"[Cc]udagraph is disabled under eager mode|disabling torch\.compile and CUDA ?[Gg]raphs"
)

SPLIT_MODES = ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""Modes that replay a full graph for uniform decode batches only."""


class Engine:
    """One engine start and all that its lines have told.

    Attributes
    ----------
    mode
        The graph mode in force, in vLLM's words, or None.
    replayed
        Whether a step was replayed: then graphs are on, whatever the configuration said.
    progressed
        Whether the run has come past its start: then another start is a new run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.mode: str | None = None
        self.replayed = False
        self.progressed = False
        self.cores: dict[str, str] = {}
        self._resolved = False
        self._largest = 0
        self._seen = 0
        run.set("axis", "tokens")

    def off(self) -> bool:
        """Say whether the configuration has graphs off and no step contradicts it."""
        return self.mode == "NONE" and not self.replayed

    def largest(self) -> int | None:
        """Return the largest captured size, or None where the log does not tell."""
        return max(self._largest, self._seen) if self._largest else None

    def stride(self) -> int | None:
        """Return the tokens of a request in a decode step, or None where the log does not tell."""
        drafted = self.run.get("speculative_tokens")
        return None if drafted is None else int(drafted) + 1

    def saw_replay(self, largest_bucket: int) -> None:
        """Learn that steps were replayed, with buckets up to ``largest_bucket``."""
        self.progressed = self.replayed = True
        self._seen = max(self._seen, largest_bucket)
        if self.mode == "NONE":
            self.mode = None
            self.run.set("mode", "unknown")
            self.run.set("graphs_off", [])
            self.run.note(
                "The tables say that graphs are off, but steps were replayed; the steps are right."
            )

    def read(self, text: str) -> bool:
        """Read a line about the configuration; say whether it is one."""
        run = self.run
        if "LLM engine (v" in text:
            self._read_start(text)
        elif "non-default args" in text or "args: Namespace(" in text:
            self._read_arguments(text)
        elif match := _HEADER_MODE.search(text):
            if not self._resolved and not (match[1] == "NONE" and self.replayed):
                self._set_mode(_mode(match[1]))
        elif match := _HEADER_SIZES.search(text):
            self._set_sizes(values.sizes(match[1]))
        elif match := _RESOLVED.search(text):
            self._set_mode(_mode(match[1]))
            self._resolved = True
            run.note(f"The engine changed its graph mode: {_message(text)}")
        elif match := _TRUNCATED.search(text):
            self._largest = int(match[1])
            run.set("max_capture_size", self._largest)
            run.note(f"The engine cut the largest captured size to {match[1]} tokens.")
        elif match := _OVERRIDDEN.search(text):
            self._set_sizes(values.sizes(match[1].strip()))
        elif match := _KV.search(text):
            run.set("kv_tokens", int(match[1].replace(",", "") or 0) or None)
        elif "Using V2 Model Runner" in text:
            run.set("model_runner", "v2")
        elif _EAGER.search(text):
            self._set_mode("NONE")
        else:
            return self._read_version(text)
        return True

    def _read_version(self, text: str) -> bool:
        match = _VERSION.search(text)
        budget = _BUDGET.search(text) if "Chunked prefill is enabled" in text else None
        if match:
            self.run.set("engine_version", match[1] or match[2])
        if budget:
            self.run.set("token_budget", int(budget[1]))
        return bool(match or budget)

    def _read_start(self, text: str) -> None:
        """Read the line in which an engine core prints its whole configuration."""
        run = self.run
        self._read_version(text)
        drafting = values.field(text, "speculative_config") or ""
        run.set("speculative_tokens", _drafted(drafting))
        run.set("tensor_parallel", values.integer(values.field(text, "tensor_parallel_size")))
        run.set("data_parallel", values.integer(values.field(text, "data_parallel_size")))
        compilation = values.field(text, "compilation_config") or ""
        mode = _mode(values.field(compilation, "cudagraph_mode"))
        if mode is None and values.boolean(values.field(compilation, "use_cudagraph")):
            full = values.boolean(values.field(compilation, "full_cuda_graph"))
            mode = "FULL" if full else "PIECEWISE"  # before 0.11 there was no mode to print
        if values.boolean(values.field(text, "enforce_eager")):
            mode = "NONE"
        self._set_mode(mode)
        self._set_sizes(values.sizes(values.field(compilation, "cudagraph_capture_sizes")))
        largest = values.integer(
            values.field(compilation, "max_cudagraph_capture_size")
            or values.field(compilation, "max_capture_size")
        )
        if largest and largest > 0:
            self._largest = largest
            run.set("max_capture_size", largest)

    def _read_arguments(self, text: str) -> None:
        run = self.run
        run.set("max_num_seqs", values.integer(values.field(text, "max_num_seqs")))
        run.set("token_budget", values.integer(values.field(text, "max_num_batched_tokens")))
        run.set("speculative_tokens", _drafted(values.field(text, "speculative_config") or ""))
        if values.boolean(values.field(text, "enable_lora")):
            run.set("lora", values.integer(values.field(text, "max_loras")))
        if values.boolean(values.field(text, "enforce_eager")):
            self._set_mode("NONE")

    def _set_mode(self, mode: str | None) -> None:
        if mode is not None:
            self.mode = mode
            self.run.set("mode", mode)
            self.run.set("graphs_off", ["decode", "prefill", "mixed"] if self.off() else [])

    def _set_sizes(self, sizes: list[int] | None) -> None:
        if sizes:
            self.run.set("capture_sizes", sizes)
            self._largest = sizes[-1]


def _mode(value: str | None) -> str | None:
    """Return the name of a graph mode, however it is spelled."""
    if value is None:
        return None
    numbers = re.sub(r"[\s()\[\]]", "", value)
    name = _MODE_NAME.search(value)
    return _NUMBERED.get(numbers) or (name[0] if name else None)


def _drafted(config: str) -> int | None:
    for name in ("num_spec_tokens", "num_speculative_tokens"):
        found = values.integer(values.field(config, name))
        if found is not None:
            return found
    return None


def _message(text: str) -> str:
    return text.partition("] ")[2][:300] or text[:300]
