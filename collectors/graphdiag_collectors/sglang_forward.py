"""Hook on ``ModelRunner.forward``: one call is one step of its model, whatever runs inside."""

from __future__ import annotations

from typing import Any

from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.sglang_config import decode_runner, prefill_runner, tell_run
from graphdiag_collectors.sglang_reasons import MEANING, tokens_of
from graphdiag_collectors.sglang_steps import THREAD, Frame
from graphdiag_collectors.sglang_words import MODES, PREFILL_PHASES, UNKNOWN_MODE


def patch_model_runner(hooks: Hooks, owner: type) -> None:
    """Patch ``forward`` of the class ``ModelRunner``."""
    guard = hooks.guard("sglang.forward")
    hooks.patch(owner, "forward", lambda original: _forward(original, guard, hooks))


def _forward(original: Function, guard: Guard, hooks: Hooks) -> Function:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on:
            return original(self, *args, **kwargs)
        frame = None
        outer = tracker.frame
        try:
            frame = _open(self, args[0] if args else kwargs["forward_batch"], hooks)
            tracker.frame = frame
        except Exception as error:
            guard.failed(error)
        try:
            output = original(self, *args, **kwargs)
        finally:
            tracker.frame = outer
        if frame is not None:
            try:
                _finish(frame, self, output)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return output

    return forward


def _open(model_runner: Any, batch: Any, hooks: Hooks) -> Frame | None:
    """Return the frame of a forward, read before the engine pads or rewrites the batch."""
    tell_run(model_runner, hooks)
    name = batch.forward_mode.name
    if name == "SPLIT_PREFILL" and getattr(batch, "split_index", 0):
        return None  # a further group of layers of a step that was counted already
    what = MODES.get(name, UNKNOWN_MODE)
    num_reqs = int(batch.batch_size)
    draft = bool(getattr(model_runner, "is_draft_worker", False))
    tokens = tokens_of(batch) if name != "DECODE" else num_reqs
    requested = tokens if what.axis == "tokens" else num_reqs
    frame = Frame(what, "draft" if draft else "target", requested, num_reqs)
    frame.num_tokens = tokens
    total = getattr(batch, "seq_lens_sum", None)
    frame.kv_tokens = total if isinstance(total, int) else None
    if what.phase == "verify" and num_reqs and tokens:
        frame.query_len = tokens // num_reqs
    lora_ids = getattr(batch, "lora_ids", None)
    if lora_ids is not None and getattr(model_runner, "lora_manager", None) is not None:
        frame.loras = len({one for one in lora_ids if one is not None})
    if THREAD.tracker.capturing:
        frame.kind = "capture"
    frame.synchronous = getattr(model_runner, "device", None) == "cpu"
    return frame


def _finish(frame: Frame, model_runner: Any, output: Any) -> None:
    if not frame.replayed:
        if _said_graph(output):
            # A graph runner whose replay we do not see: that it ran is all that is known.
            frame.replayed = True
            frame.mode = "full"
        else:
            _explain(frame, model_runner)
    THREAD.tracker.close(frame)


def _explain(frame: Frame, model_runner: Any) -> None:
    """Say whether a step that ran eager should have had a graph, and why it had none."""
    what = frame.what
    if frame.reason is not None:  # a graph runner was asked and turned it down
        frame.expects = True
    elif what.phase in PREFILL_PHASES:
        frame.expects = prefill_runner(model_runner) is not None
        frame.reason = "unknown" if frame.expects else None
    elif frame.runner == "draft" and THREAD.tracker.refused is not None:
        frame.expects = True
        frame.reason = MEANING[THREAD.tracker.refused]
    else:
        frame.expects = decode_runner(model_runner) is not None
        if frame.expects:
            graphable = what.on_cpu if frame.synchronous else what.decodes
            frame.reason = "unknown" if graphable else "mode_excluded"


def _said_graph(output: Any) -> bool:
    """Return the engine's own word on whether a graph ran: a tuple's second item up to 0.5.8."""
    if isinstance(output, tuple):
        return bool(len(output) > 1 and output[1] is True)
    return getattr(output, "can_run_graph", False) is True
