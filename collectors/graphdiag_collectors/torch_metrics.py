"""What one of Dynamo's compilation metrics says, in every torch from 2.4 on.

Fields came and went between versions, so each is asked for; what is not there is not known.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import PurePath
from types import CodeType
from typing import Any, NamedTuple

MOST_TEXT = 2000
_LOOK_BACK = 60


class Frame(NamedTuple):
    """A frame that is compiled: its name in the trace, and the same with its file's whole path."""

    name: str
    key: str


class Counters:
    """Dynamo's counters of the whole process, and by how much each has grown since last asked."""

    def __init__(self, counters: Mapping[str, Mapping[str, int]]) -> None:
        self._counters = counters
        self._before: dict[tuple[str, str], int] = {}

    def grown(self, group: str, name: str) -> int:
        """Return how much the counter grew since the last call; one that fell began anew."""
        now = self._counters.get(group, {}).get(name, 0)
        before = self._before.get((group, name), 0)
        if now != before:
            self._before[group, name] = now
        return now - before if now >= before else now

    def all_grown(self, group: str) -> dict[str, int]:
        """Return the counters of ``group`` that grew since the last call, and by how much."""
        since = {name: self.grown(group, name) for name in tuple(self._counters.get(group, {}))}
        return {name: count for name, count in since.items() if count}


def time_of(metrics: Any) -> tuple[int | None, int | None]:
    """Return start (wall clock) and duration in ns, where the metrics tell."""
    start_us, took_us = _get(metrics, "start_time_us"), _get(metrics, "duration_us")
    start_s, took_s = _get(metrics, "start_time"), _get(metrics, "entire_frame_compile_time_s")
    end_us = _get(metrics, "end_time_us")
    start = start_us * 1000 if start_us is not None else _ns(start_s)
    if took_us is not None:
        return start, took_us * 1000
    if took_s is not None:
        return start, _ns(took_s)
    return start, (end_us - start_us) * 1000 if None not in (end_us, start_us) else None


def kind_of(metrics: Any, compile_id: str) -> str:
    """Return what was compiled: ``dynamo`` for a forward frame, else what else there is."""
    if compile_id.startswith("!"):
        return "compiled_autograd"
    return "backward" if _get(metrics, "is_forward") is False else "dynamo"


def frame_of(metrics: Any) -> Frame | None:
    """Return the frame, or None where the metrics leave it out."""
    name = _get(metrics, "co_name")
    if name is None:
        return None
    return _frame(name, _get(metrics, "co_filename") or "", _get(metrics, "co_firstlineno"))


def frame_name(code: CodeType) -> Frame:
    """Return the frame that runs ``code``."""
    return _frame(code.co_name, code.co_filename, code.co_firstlineno)


def frame_being_compiled() -> Frame | None:
    """Return the frame that Dynamo compiles at this moment in this thread, read off the stack.

    At the recompile limit Dynamo gives up before it writes down which frame it was.
    """
    caller = sys._getframe(1)
    for _ in range(_LOOK_BACK):
        code = caller.f_code
        if code.co_name == "_compile" and code.co_filename.endswith("convert_frame.py"):
            compiled = caller.f_locals.get("code")
            if isinstance(compiled, CodeType):
                return frame_name(compiled)
            return None
        if caller.f_back is None:
            return None
        caller = caller.f_back
    return None


def cache_of(metrics: Any, counters: Counters, history: bool = False) -> str | None:
    """Return whether inductor's or AOT autograd's cache served the compile: hit, miss or none.

    The metrics tell from torch 2.13 on; before, the counters do for a compile that has just
    finished, and nothing does for one in the past.
    """
    if hasattr(metrics, "inductor_fx_local_cache_hit_count"):
        remote = _count(metrics, "inductor_fx_remote_cache_hit_count")
        hit = remote + _count(metrics, "inductor_fx_local_cache_hit_count")
        miss = 0 if remote else _count(metrics, "inductor_fx_local_cache_miss_count")
        aot_hit = _count(metrics, "aotautograd_local_cache_hit_count")
        aot_hit += _count(metrics, "aotautograd_remote_cache_hit_count")
        aot_miss = _count(metrics, "aotautograd_local_cache_miss_count")
    else:
        if history:
            return None
        hit = counters.grown("inductor", "fxgraph_cache_hit")
        miss = counters.grown("inductor", "fxgraph_cache_miss")
        aot_hit = counters.grown("aot_autograd", "autograd_cache_hit")
        aot_miss = counters.grown("aot_autograd", "autograd_cache_miss")
    if miss or (aot_miss and not hit):
        return "miss"
    return "hit" if hit or aot_hit else "none"


def short(text: Any) -> str | None:
    """Return ``text`` as text of at most :data:`MOST_TEXT` characters, None where there is none."""
    if text is None:
        return None
    words = str(text).encode(errors="replace").decode()
    return words if len(words) <= MOST_TEXT else f"{words[: MOST_TEXT - 1]}…"


def _frame(name: str, file: str, line: int | None) -> Frame:
    return Frame(f"{name} {PurePath(file).name}:{line}", f"{name} {file}:{line}")


def _get(metrics: Any, field: str) -> Any:
    return getattr(metrics, field, None)


def _count(metrics: Any, field: str) -> int:
    return _get(metrics, field) or 0


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)
