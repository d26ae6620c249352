"""The hook on a method that replays a graph, whichever class of the engine holds it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.guard import Function, Guard
from graphdiag_collectors.sglang_rows import Model
from graphdiag_collectors.sglang_steps import THREAD, Asked, Tracker
from graphdiag_collectors.sglang_words import MODES, is_draft, role

_MET = "_graphdiag_traits"

Before = Callable[[Any, Any], Any]
After = Callable[[Tracker, Any, Any, Any, float], None]


def around_replay(
    original: Function, guard: Guard, before: Before | None, after: After
) -> Function:
    """Return ``original``, a method that replays a graph, with ``after`` told of each replay.

    Parameters
    ----------
    before
        Given the object and the call's first argument, returns what the replay will overwrite.
        Without it that is the call's second argument.
    after
        Given the thread's tracker, the object, the first argument, what ``before`` returned, and
        the seconds it took. A replay within a replay is none of its own.
    """

    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on or tracker.replaying:
            return original(self, *args, **kwargs)
        usual = before is None and not kwargs and len(args) == 2
        try:
            if usual:
                first, kept = args
            else:
                first = args[0] if args else next(iter(kwargs.values()))
                kept = None if before is None else before(self, first)
        except Exception as error:
            guard.failed(error)
            return original(self, *args, **kwargs)
        tracker.replaying = True
        start = perf_counter()
        try:
            # To pass arguments on by * and ** costs more than this test.
            output = original(self, first, kept) if usual else original(self, *args, **kwargs)
        finally:
            tracker.replaying = False
        try:
            after(tracker, self, first, kept, perf_counter() - start)
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return output

    return replay


class Traits:
    """What stays the same for all batches that a graph runner is asked about.

    Attributes
    ----------
    prefill, draft
        What its graphs serve.
    synchronous
        Whether a replay has its result when it returns, as on a CPU.
    model
        What its steps outside of ``ModelRunner.forward`` are recorded by.
    """

    __slots__ = ("draft", "model", "prefill", "synchronous")

    def __init__(self, runner: Any) -> None:
        self.prefill = "prefill" in role(runner)
        self.draft = is_draft(runner)
        self.synchronous = (
            getattr(getattr(runner, "model_runner", None), "device", None) == "cpu"
            or getattr(runner, "device", None) == "cpu"
        )
        self.model: Model | None = None


def traits_of(runner: Any) -> Traits:
    """Return the traits of a graph runner, worked out when first asked for."""
    try:
        found: Traits = runner._graphdiag_traits
    except AttributeError:
        found = Traits(runner)
        if runner is not None:
            setattr(runner, _MET, found)
    return found


def enter_draft(tracker: Tracker, runner: Any, reqs: int, batch: Any) -> Asked | None:
    """Enter a step for a graph that runs outside ``ModelRunner.forward``.

    None where nothing is to be recorded.
    """
    recorder = session.current()
    if recorder is None:
        return None
    traits = traits_of(runner)
    model = traits.model
    if model is None or model.recorder is not recorder:
        word = "draft" if traits.draft else "target"
        channel = tracker.channel(recorder, word)
        model = traits.model = Model(recorder, channel, word, traits.synchronous, loras=False)
    mode = getattr(batch, "forward_mode", None)
    sort = model.sorts.get(mode)
    if sort is None:
        what = MODES.get(getattr(mode, "name", "DECODE"), MODES["DECODE"])
        if what.axis == "tokens" and not traits.prefill:
            what = MODES["DECODE"]
        sort = model.sort(mode, what)
    return tracker.enter(sort, NULL, reqs, reqs, NULL, NULL)
