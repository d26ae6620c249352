"""Hooks on the graph runners and backends of SGLang from 0.5.14 on.

``can_run_graph`` tells why a batch ran eager, ``replay`` of the backend which artifact ran. The
backend's ``replay`` is the one place that every graph passes: decode, verify, drafts and prefill.
What runs outside ``ModelRunner.forward``, as drafts do, becomes a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import Any

from graphdiag_collectors import session
from graphdiag_collectors.guard import Function, Guard, Hooks
from graphdiag_collectors.sglang_reasons import MEANING, decode_reason, prefill_reason, wanted_size
from graphdiag_collectors.sglang_replay import around_replay, enter_draft, traits_of
from graphdiag_collectors.sglang_rows import Graph
from graphdiag_collectors.sglang_steps import (
    DISPATCH,
    GRAPH,
    LAUNCH,
    NOTHING,
    REASON,
    REPLAYS,
    REQS,
    THREAD,
    Tracker,
)
from graphdiag_collectors.sglang_words import VARIANTS, artifact, counts_tokens, graph_mode, role

KNOWN = "_graphdiag_graphs"
"""Attribute of a backend that holds what we know of each of its graphs: a :class:`_Known`."""


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
            hooks.patch(owner, name, partial(_replay, guard=hooks.guard("sglang.replay")))


def _replay(original: Function, guard: Guard) -> Function:
    any_replay = around_replay(original, guard, before=None, after=_replayed)

    def replay(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A graph that was replayed before, in a forward, called as the engine's decode runner
        # calls it: the same as any_replay, at half its cost.
        tracker = THREAD.tracker
        seen = tracker.seen
        if kwargs or seen is None or tracker.replaying or not guard.on or len(args) != 2:
            return any_replay(self, *args, **kwargs)
        key, batch = args
        try:
            known = self._graphdiag_graphs
            graph = known.plain.get(known.tell_apart(key))
        except AttributeError:
            graph = None
        if graph is None:
            return any_replay(self, *args, **kwargs)
        tracker.replaying = True
        start = perf_counter()
        try:
            output = original(self, key, batch)
        finally:
            tracker.replaying = False
        seen[LAUNCH] += perf_counter() - start
        seen[GRAPH] = graph
        seen[REASON] = None
        seen[REPLAYS] += graph.launches
        return output

    return replay


def decide(original: Function, guard: Guard) -> Function:
    """Wrap ``can_run_graph``, or the older ``can_run``: time it, and explain a refusal."""

    def can_run_graph(self: Any, forward_batch: Any, *more: Any, **named: Any) -> Any:
        if more or named or not guard.on:
            return original(self, forward_batch, *more, **named)
        tracker = THREAD.tracker
        seen = tracker.seen or list(NOTHING)
        before = seen[DISPATCH]
        start = perf_counter()
        allowed = original(self, forward_batch)
        try:
            # A subclass's answer includes that of the class above.
            seen[DISPATCH] = before + perf_counter() - start
            if allowed is not True:
                _refused(tracker, self, forward_batch, allowed)
            elif tracker.seen is None and traits_of(self).draft:
                tracker.refused = None
            if guard.in_a_row:
                guard.in_a_row = 0
        except Exception as error:
            guard.failed(error)
        return allowed

    return can_run_graph


def _refused(tracker: Tracker, runner: Any, batch: Any, allowed: Any) -> None:
    """Keep why a batch was turned down; outside of a step it is a draft that is being planned."""
    seen = tracker.seen
    if seen is not None and seen[REASON] is not None:
        return
    traits = traits_of(runner)
    if type(allowed) is not bool:
        # Only an encoder-decoder answers with a tensor; to read it would wait for the device.
        # It counts where the step turns out to have run eager.
        why = "encoder_mixed"
    elif traits.prefill:
        why = prefill_reason(runner, batch)
    else:
        why = decode_reason(runner, batch)
    if seen is not None:
        seen[REASON] = MEANING[why]
    elif traits.draft:
        tracker.refused = why


def _draft(original: Function, guard: Guard) -> Function:
    """Wrap what a draft worker calls, outside ``ModelRunner.forward``, to have a graph replayed."""

    def execute(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracker = THREAD.tracker
        if not guard.on or tracker.seen is not None:
            return original(self, *args, **kwargs)
        asked = None
        try:
            # The engine sets batch_size to the bucket while the graph runs: read it before.
            batch = args[0] if args else kwargs.get("forward_batch")
            raw = self.raw_bs if isinstance(batch, int) or batch is None else batch.batch_size
            asked = enter_draft(tracker, self, int(raw), batch)
        except Exception as error:
            guard.failed(error)
        start = perf_counter()
        try:
            output = original(self, *args, **kwargs)
        except BaseException:
            if asked is not None:
                tracker.leave(asked)
            raise
        if asked is not None:
            try:
                if (tracker.seen or NOTHING)[GRAPH] is not None:
                    tracker.close(asked, start, None, None)
                else:  # one graph may serve several calls
                    tracker.leave(asked)
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                guard.failed(error)
        return output

    return execute


class _Known:
    """The graphs of one backend that were replayed, by what the engine looks them up by.

    Attributes
    ----------
    tell_apart
        Returns what tells a key from the others. A ``ShapeKey`` itself takes longer to look up
        than its fields do, because its hash and its comparison are Python's.
    graphs
        By that.
    plain
        Those of the target that take their bucket from the batch alone.
    unsized
        Artifacts of whose replays the number of requests cannot be seen.
    """

    __slots__ = ("graphs", "plain", "tell_apart", "unsized")

    def __init__(self, key: Any) -> None:
        fields = [name for name in ("size", *VARIANTS) if hasattr(key, name)]
        self.tell_apart: Callable[[Any], Any] = attrgetter(*fields) if fields else _itself
        self.graphs: dict[Any, Graph] = {}
        self.plain: dict[Any, Graph] = {}
        self.unsized: set[str | None] = set()


def _itself(key: Any) -> Any:
    return key


def _replayed(tracker: Tracker, backend: Any, key: Any, batch: Any, took: float) -> None:
    """Fill in the step under way, or record one where the engine replays outside of any."""
    try:
        known = backend._graphdiag_graphs
        graph = known.graphs[known.tell_apart(key)]
    except (AttributeError, KeyError):
        graph = _identify(backend, key)
    seen = tracker.seen
    if seen is None:
        raw = getattr(graph.runner, "raw_bs", None)
        if raw is None:
            raw = getattr(batch, "batch_size", None)
        if not isinstance(raw, int):
            _tell_unsized(backend, graph)
            return
        alone = enter_draft(tracker, graph.runner, raw, batch)
        if alone is not None:
            _replayed(tracker, backend, key, batch, took)
            tracker.close(alone, perf_counter() - took, None, None)
        return
    seen[GRAPH] = graph
    seen[REASON] = None
    seen[LAUNCH] += took
    seen[REPLAYS] += graph.launches
    if graph.gathers and (wanted_size(graph.runner, batch) or 0) > seen[REQS]:
        seen[REASON] = "dp_sync"  # the bucket is that of a larger data-parallel rank
    if graph.drafts:
        tracker.refused = None


def _tell_unsized(backend: Any, graph: Graph) -> None:
    """Mark, once for each artifact, that it is replayed for a number of requests we cannot see."""
    recorder = session.current()
    unsized = getattr(backend, KNOWN).unsized
    if recorder is not None and graph.name not in unsized:
        unsized.add(graph.name)
        recorder.mark("unsized_replay", {"artifact": graph.name})


def _identify(backend: Any, key: Any) -> Graph:
    """Return what we know of a graph that was not replayed before, and keep it."""
    known = vars(backend).get(KNOWN)
    if known is None:
        known = _Known(key)
        setattr(backend, KNOWN, known)
    runner = runner_of(backend)
    kind = role(runner)
    in_tokens = counts_tokens(runner)
    segments = getattr(getattr(backend, "_graphs", {}).get(key), "_segments", None)
    name = artifact(kind, key, in_tokens)
    graph = Graph(name, int(key.size), graph_mode(backend), len(segments) if segments else 1)
    graph.runner = runner
    graph.drafts = traits_of(runner).draft
    if "prefill" not in kind:
        graph.in_tokens = in_tokens
        graph.gathers = bool(getattr(runner, "require_mlp_tp_gather", False))
    known.graphs[known.tell_apart(key)] = graph
    if not (graph.drafts or graph.gathers or graph.in_tokens):
        known.plain[known.tell_apart(key)] = graph
    return graph


def runner_of(backend: Any) -> Any:
    """Return the runner that a backend belongs to; backends of other makers name it otherwise."""
    runner = getattr(backend, "_cuda_graph_runner", None)
    if runner is not None:
        return runner
    for value in vars(backend).values():
        if hasattr(value, "can_run_graph") and hasattr(value, "model_runner"):
            return value
    return None
