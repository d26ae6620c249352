"""Hook on ``ModelRunner.forward``: one call is one step of its model, whatever runs inside."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from graphdiag_collectors import profiler, session
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.sglang_captures import patch_backend_class
from graphdiag_collectors.sglang_config import MET, decode_runner, prefill_runner, tell_run
from graphdiag_collectors.sglang_reasons import MEANING, tokens_of
from graphdiag_collectors.sglang_rows import NOT_KNOWN, SOME_GRAPH, Fate, Model, Sort, write_usual
from graphdiag_collectors.sglang_steps import GRAPH, NOTHING, REASON, THREAD, Asked, Tracker
from graphdiag_collectors.sglang_words import PREFILL_PHASES

_NOT_GIVEN: Any = object()


def patch_model_runner(hooks: Hooks, owner: type) -> None:
    """Patch ``forward`` of the class ``ModelRunner``."""
    guard = hooks.guard("sglang.forward")
    hooks.patch(owner, "forward", lambda original: _forward(original, guard, hooks))


def _forward(original: Function, guard: Guard, hooks: Hooks) -> Function:
    def any_forward(self: Any, forward_batch: Any, *more: Any, **named: Any) -> Any:
        tracker = THREAD.tracker
        asked = step = None
        if guard.on:
            try:
                if profiler.window is not None:
                    step = _profiled(tracker, self)
                asked = _ask(tracker, self, forward_batch, hooks)
            except Exception as error:
                guard.failed(error)
        start = perf_counter()
        try:
            output = original(self, forward_batch, *more, **named)
        except BaseException:
            if asked is not None:
                tracker.leave(asked)
            raise
        finally:
            if step is not None:
                profiler.step_ended(step)
        if asked is not None:
            try:
                fate = None
                seen = tracker.seen or NOTHING
                if seen[GRAPH] is None:
                    fate = _explain(tracker, seen[REASON], asked[0], self, output)
                tracker.close(asked, start, fate, step)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return output

    def forward(
        self: Any, forward_batch: Any, *more: Any, pp_proxy_tensors: Any = _NOT_GIVEN, **named: Any
    ) -> Any:
        # Most forwards, called as the scheduler calls it: the same as any_forward, at less cost.
        tracker = THREAD.tracker
        sort = None
        usual = tracker.usual
        if usual is None and tracker.rows is None:
            usual = tracker.between_batches()
        if usual is not None and guard.on and pp_proxy_tensors is not _NOT_GIVEN:
            try:
                model = self._graphdiag_model
                if model.recorder is usual:
                    sort = model.usual.get(forward_batch.forward_mode)
                reqs, kv = forward_batch.batch_size, forward_batch.seq_lens_sum
                tokens = reqs
                if sort is not None and not sort.one_each:
                    tokens = tokens_of(forward_batch)
                    if sort.verifies:
                        sort = sort.of_width(tokens // reqs) if tokens and reqs else None
            except Exception:
                sort = None  # for any_forward to see
        if sort is None or tokens is None or more or named:
            if pp_proxy_tensors is not _NOT_GIVEN:
                named["pp_proxy_tensors"] = pp_proxy_tensors
            return any_forward(self, forward_batch, *more, **named)
        tracker.usual = None
        seen = tracker.seen = [reqs, None, None, 0.0, 0.0, 0]
        start = perf_counter()
        try:
            output = original(self, forward_batch, pp_proxy_tensors=pp_proxy_tensors)
        finally:
            tracker.seen = None
        try:
            returned = perf_counter()
            _, fate, reason, dispatch, launch, replays = seen
            if fate is None:
                launch = NOT_KNOWN
                fate = _explain(tracker, reason, sort, self, output)
            elif fate.in_tokens or replays != fate.launches:
                kv = kv if type(kv) is int else NULL
                asked = (sort, kv, tokens if sort.in_tokens else reqs, reqs, tokens, NULL, None)
                tracker.seen = seen
                tracker.close(asked, start, None, None)
                tracker.usual = None if tracker.rows is None else usual
                return output
            elif reason is not None:
                fate = (fate, True, reason, None)
            try:
                code = sort.codes[fate]
            except KeyError:
                code = sort.code(fate)
            # fmt: off
            row = (
                sort, code, start, returned, dispatch, launch,
                kv if type(kv) is int else NULL, tokens if sort.in_tokens else reqs, reqs, tokens,
            )
            # fmt: on
            if tracker.rows is not None:
                tracker.rows.append(row)
                tracker.usual = usual
            else:
                write_usual(row, start, returned if sort.synchronous else NOT_KNOWN)
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return output

    return forward


def _ask(tracker: Tracker, model_runner: Any, batch: Any, hooks: Hooks) -> Asked | None:
    """Enter a step for a forward, read before the engine pads or rewrites the batch."""
    try:
        model = model_runner._graphdiag_model
        if model.recorder is not session.current():
            model = _meet(tracker, model_runner, hooks)
    except AttributeError:
        model = _meet(tracker, model_runner, hooks)
    if model is None:
        return None  # nobody asked for a trace, or its folder cannot be made
    mode = batch.forward_mode
    sort = model.sorts.get(mode)
    if sort is None:
        sort = model.sort(mode)
    reqs = batch.batch_size
    kv = getattr(batch, "seq_lens_sum", None)
    if type(kv) is not int:
        kv = NULL
    if sort.split and getattr(batch, "split_index", 0):
        return None  # a further group of layers of a step that was counted already
    tokens = tokens_of(batch) if mode.name != "DECODE" else reqs
    loras = NULL
    if tokens is None:
        tokens = NULL
    elif sort.verifies and reqs and tokens:
        sort = sort.of_width(tokens // reqs)
    if model.loras:
        lora_ids = getattr(batch, "lora_ids", None)
        if lora_ids is not None:
            loras = len({one for one in lora_ids if one is not None})
    return tracker.enter(sort, kv, tokens if sort.in_tokens else reqs, reqs, tokens, loras)


def _meet(tracker: Tracker, model_runner: Any, hooks: Hooks) -> Model | None:
    """Tell the run's configuration, and keep what stays the same for the model's forwards."""
    recorder: Recorder | None = tell_run(model_runner, hooks)
    if recorder is None:
        return None
    for runner in (decode_runner(model_runner), prefill_runner(model_runner)):
        backend = getattr(runner, "backend", None)
        if backend is not None:  # captured before anybody attached, by a class not known to us
            patch_backend_class(hooks, type(backend))
    runner = "draft" if getattr(model_runner, "is_draft_worker", False) else "target"
    model = Model(
        recorder,
        tracker.channel(recorder, runner),
        runner,
        synchronous=getattr(model_runner, "device", None) == "cpu",
        loras=getattr(model_runner, "lora_manager", None) is not None,
    )
    setattr(model_runner, MET, model)
    return model


def _profiled(tracker: Tracker, model_runner: Any) -> Any:
    """Begin a step of a profile window where no batch of the scheduler's is one."""
    if tracker.rows is not None or tracker.seen is not None or tracker.capturing:
        return None
    if getattr(model_runner, "is_draft_worker", False):
        return None
    return profiler.step_begun()


def _explain(tracker: Tracker, reason: Any, sort: Sort, model_runner: Any, output: Any) -> Fate:
    """Say whether a step that ran eager should have had a graph, and why it had none."""
    kind = tracker.kind(sort)
    if _said_graph(output):
        # A graph runner whose replay we do not see: that it ran is all that is known.
        return SOME_GRAPH, True, reason, kind
    what = sort.what
    if reason is not None:  # a graph runner was asked and turned it down
        expects = True
    elif what.phase in PREFILL_PHASES:
        expects = prefill_runner(model_runner) is not None
        reason = "unknown" if expects else None
    elif not sort.target and tracker.refused is not None:
        expects = True
        reason = MEANING[tracker.refused]
    else:
        expects = decode_runner(model_runner) is not None
        if expects:
            graphable = what.on_cpu if sort.synchronous else what.decodes
            reason = "unknown" if graphable else "mode_excluded"
    return None, expects, reason, kind


def _said_graph(output: Any) -> bool:
    """Return the engine's own word on whether a graph ran: a tuple's second item up to 0.5.8."""
    if isinstance(output, tuple):
        return bool(len(output) > 1 and output[1] is True)
    return getattr(output, "can_run_graph", False) is True
