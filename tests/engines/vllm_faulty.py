"""A real engine to break the collector in, and a disk to be made slow or full."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

Found = dict[str, Any]
OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "max_num_seqs": 48,
    "max_model_len": 256,
    "max_num_batched_tokens": 256,
    "dtype": "float32",
    "enforce_eager": True,
    "enable_prefix_caching": False,
}


class Engine:
    """A real engine in this process, and a list of its steps that the collector has no part in."""

    def __init__(self, model: str) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import LLM

        self.llm = LLM(model=model, **OPTIONS)
        from vllm_child import runner_of

        self.runner = runner_of(self.llm)
        self.steps: list[tuple[float, int]] = []
        self.at_step: dict[int, Callable[[], None]] = {}
        self._watch()
        self.plain = self.generate()

    def _watch(self) -> None:
        # On the class and before the collector, which puts back what it finds when it is taken off.
        owner = type(self.runner).__mro__[1]
        execute = owner.execute_model

        def execute_model(model: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            tokens = scheduler_output.total_num_scheduled_tokens
            if tokens:
                self.steps.append((time.perf_counter(), tokens))
                action = self.at_step.pop(len(self.steps), None)
                if action is not None:
                    action()
            return execute(model, scheduler_output, *args, **kwargs)

        owner.execute_model = execute_model

    def generate(self) -> list[list[int]]:
        from vllm_child import generate

        self.steps.clear()
        return generate(self.llm)

    def serve(self, found: Found) -> list[int]:
        """Generate, note whether the tokens were the right ones, and return the steps' sizes."""
        found["same"] = found.get("same", True) and self.generate() == self.plain
        sizes = [tokens for _, tokens in self.steps]
        found.setdefault("steps", []).append(sizes)
        return sizes

    def intervals(self) -> list[float]:
        """Seconds between the starts of the steps last run."""
        starts = [start for start, _ in self.steps]
        return [after - before for before, after in pairwise(starts)]


def ask(command: str, **more: object) -> Found:
    from graphdiag_collectors import control

    return dict(control.answer({"command": command, **more}))


@contextmanager
def recording(trace: Path, found: Found, run: str = "one") -> Iterator[Any]:
    """Attach as ``graphdiag attach`` does, and yield what writes all rows at once."""
    from graphdiag_collectors import session

    told = ask("attach", trace=str(trace), run=run)
    assert told["ok"], told

    def flush() -> None:
        recorder = session.current()
        assert recorder is not None
        recorder.flush()

    try:
        yield flush
    finally:
        told = ask("detach")
        found.update(dropped=told.get("dropped"), hooks=told["collectors"]["vllm"])


@contextmanager
def started_with(trace: Path) -> Iterator[None]:
    """Patch as in an engine that was started with ``GRAPHDIAG_TRACE``."""
    from graphdiag_collectors import session, vllm

    os.environ["GRAPHDIAG_TRACE"] = str(trace)
    vllm.install()
    try:
        yield
    finally:
        vllm.uninstall()
        session.close()
        for name in ("GRAPHDIAG_TRACE", "GRAPHDIAG_RUN"):
            os.environ.pop(name, None)


class Disk:
    """A disk that can be made slow: the collector's writes and fsyncs take ``seconds``.

    Attributes
    ----------
    seconds
        How long the next write or fsync takes.
    sleeping
        Set while one does.
    awake
        Ends what sleeps now.
    """

    def __init__(self) -> None:
        from graphdiag_collectors import files

        self.seconds = 0.0
        self.sleeping = threading.Event()
        self.awake = threading.Event()
        self.slept: list[tuple[float, float]] = []
        write, sync = files.Tail._write, files._sync

        def slow_write(tail: Any, data: Any) -> int:
            self._sleep()
            return write(tail, data)

        def slow_sync(path: Path) -> None:
            self._sleep()
            sync(path)

        files.Tail._write = slow_write  # type: ignore[method-assign]
        files._sync = slow_sync

    def _sleep(self) -> None:
        if self.seconds:
            start = time.perf_counter()
            self.sleeping.set()
            self.awake.wait(self.seconds)
            self.sleeping.clear()
            self.slept.append((start, time.perf_counter()))


def fill(disk: Path) -> Path:
    """Take all room of a file system."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return ballast
