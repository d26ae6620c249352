"""Hooks on the graph runners and backends of SGLang from 0.5.14 on.

``can_run_graph`` tells why a batch ran eager, ``replay`` of the backend which artifact ran. The
backend's ``replay`` is the one place that every graph passes: decode, verify, drafts and prefill.
What runs outside ``ModelRunner.forward``, as drafts do, becomes a step of its own.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.sglang_reasons import MEANING, decode_reason, prefill_reason, wanted_size
from graphdiag_collectors.sglang_steps import THREAD, Frame, Tracker
from graphdiag_collectors.sglang_words import (
    MODES,
    artifact,
    counts_tokens,
    graph_mode,
    is_draft,
    role,
)

KNOWN = "_graphdiag_artifacts"
"""Attribute of a backend that holds what we know of each of its graphs, by the engine's key."""


def patch_runner(hooks: Hooks, owner: type) -> None:
    """Patch ``can_run_graph`` of a runner class, and ``execute`` where it drafts."""
    names = vars(owner)
    if "can_run_graph" in names:
        guard = hooks.guard("sglang.can_run_graph")
        hooks.patch(owner, "can_run_graph", partial(decide, guard=guard))
    drafts = "Draft" in owner.__name__ or "MTP" in owner.__name__
    for name in ("execute", "replay"):
        # Where a runner of several draft steps has a replay, that is what its worker calls.
        if name in names and drafts and (name == "execute" or "MultiStep" in owner.__name__):
            draft = hooks.guard("sglang.draft")
            hooks.patch(owner, name, partial(_draft, guard=draft))


def patch_backend(hooks: Hooks, owner: type) -> None:
    """Patch the replay methods of a graph backend class."""
    for name in ("replay", "replay_with_input_update"):
        if name in vars(owner):
            guard = hooks.guard("sglang.replay")
            hooks.patch(owner, name, partial(_replay, guard=guard))


def decide(original: Function, guard: Guard) -> Function:
    """Wrap ``can_run_graph``, or the older ``can_run``: time it, and explain a refusal."""

    def can_run_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on:
            return original(self, *args, **kwargs)
        frame = tracker.frame
        before = 0.0 if frame is None else frame.dispatch
        start = perf_counter()
        allowed = original(self, *args, **kwargs)
        try:
            if frame is not None:  # a subclass's answer includes that of the class above
                frame.dispatch = before + perf_counter() - start
            if allowed is not True:
                batch = args[0] if args else kwargs["forward_batch"]
                _refused(self, batch, allowed, frame)
            elif frame is None and is_draft(self):
                tracker.refused = None
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return allowed

    return can_run_graph


def _refused(runner: Any, batch: Any, allowed: Any, frame: Frame | None) -> None:
    """Keep why a batch was turned down; without a frame it is a draft that is being planned."""
    if type(allowed) is not bool:
        # Only an encoder-decoder answers with a tensor; to read it would wait for the device.
        # It counts where the step turns out to have run eager.
        why = "encoder_mixed"
    elif "prefill" in role(runner):
        why = prefill_reason(runner, batch)
    else:
        why = decode_reason(runner, batch)
    if frame is not None:
        frame.reason = frame.reason or MEANING[why]
    elif is_draft(runner):
        THREAD.tracker.refused = why


def _draft(original: Function, guard: Guard) -> Function:
    """Wrap what a draft worker calls, outside ``ModelRunner.forward``, to have a graph replayed."""

    def execute(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on or tracker.frame is not None:
            return original(self, *args, **kwargs)
        frame = None
        try:
            # The engine sets batch_size to the bucket while the graph runs: read it before.
            batch = args[0] if args else kwargs.get("forward_batch")
            raw = self.raw_bs if isinstance(batch, int) or batch is None else batch.batch_size
            frame = tracker.frame = draft_frame(self, int(raw), batch)
        except Exception as error:
            guard.failed(error)
        try:
            output = original(self, *args, **kwargs)
        finally:
            tracker.frame = None
        if frame is not None:
            try:
                if frame.replayed:  # one graph may serve several calls
                    tracker.close(frame)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return output

    return execute


def draft_frame(runner: Any, num_reqs: int, batch: Any) -> Frame:
    """Return the frame of a graph that runs outside ``ModelRunner.forward``."""
    name = getattr(getattr(batch, "forward_mode", None), "name", "DECODE")
    what = MODES.get(name, MODES["DECODE"])
    if what.axis == "tokens" and "prefill" not in role(runner):
        what = MODES["DECODE"]
    frame = Frame(what, "draft" if is_draft(runner) else "target", num_reqs, num_reqs)
    frame.expects = True
    if THREAD.tracker.capturing:
        frame.kind = "capture"
    frame.synchronous = (
        getattr(getattr(runner, "model_runner", None), "device", None) == "cpu"
        or getattr(runner, "device", None) == "cpu"
    )
    return frame


def _replay(original: Function, guard: Guard) -> Function:
    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on or tracker.replaying:
            return original(self, *args, **kwargs)
        tracker.replaying = True
        start = perf_counter()
        try:
            output = original(self, *args, **kwargs)
        finally:
            tracker.replaying = False
        try:
            end = perf_counter()
            key = args[0] if args else kwargs["shape_key"]
            _replayed(tracker, self, key, start, end, args[1] if len(args) > 1 else None)
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return output

    return replay


def _replayed(
    tracker: Tracker, backend: Any, key: Any, start: float, end: float, batch: Any
) -> None:
    """Fill in the step under way, or record one where the engine replays outside of any."""
    known = vars(backend).get(KNOWN)
    if known is None:
        known = {}
        setattr(backend, KNOWN, known)
    found = known.get(key)
    if found is None:
        found = known[key] = _identify(backend, key)
    name, size, mode, launches, requests, runner = found
    frame = tracker.frame
    alone = frame is None
    if frame is None:
        raw = getattr(runner, "raw_bs", None)
        if raw is None:
            raw = getattr(batch, "batch_size", None)
        if not isinstance(raw, int):
            _tell_unsized(known, key, name)
            return
        frame = draft_frame(runner, raw, batch)
        frame.start = start
    frame.replayed = True
    frame.reason = None
    frame.bucket = size
    frame.artifact = name
    frame.mode = mode
    frame.replays += launches
    frame.launch += end - start
    if requests:
        if counts_tokens(runner):
            frame.what = frame.what._replace(axis="tokens")
            frame.requested = frame.num_tokens
        elif getattr(runner, "require_mlp_tp_gather", False):
            _note_other_ranks(frame, runner, batch)
    if frame.runner == "draft":
        tracker.refused = None
    if alone:
        tracker.close(frame)


def _tell_unsized(known: dict[Any, Any], key: Any, name: str) -> None:
    """Mark, once for each artifact, that it is replayed for a number of requests we cannot see."""
    recorder = session.current()
    if recorder is not None and ("unsized", key) not in known:
        known["unsized", key] = True
        recorder.mark("unsized_replay", {"artifact": name})


def _note_other_ranks(frame: Frame, runner: Any, batch: Any) -> None:
    """Say that the bucket was another data-parallel rank's, where it had more requests."""
    most = None if batch is None else wanted_size(runner, batch)
    if most is not None and most > frame.num_reqs:
        frame.reason = "dp_sync"


def _identify(backend: Any, key: Any) -> tuple[str, int, str, int, bool, Any]:
    """Return name, size, mode and launches of an artifact, and whether it is a decode's."""
    runner = runner_of(backend)
    kind = role(runner)
    segments = getattr(getattr(backend, "_graphs", {}).get(key), "_segments", None)
    launches = len(segments) if segments else 1
    name = artifact(kind, key, counts_tokens(runner))
    return name, int(key.size), graph_mode(backend), launches, "prefill" not in kind, runner


def runner_of(backend: Any) -> Any:
    """Return the runner that a backend belongs to; backends of other makers name it otherwise."""
    runner = getattr(backend, "_cuda_graph_runner", None)
    if runner is not None:
        return runner
    for value in vars(backend).values():
        if hasattr(value, "can_run_graph") and hasattr(value, "model_runner"):
            return value
    return None
