"""From a dispatch to a row: what the engine's thread does at the end of every step.

Both model runners come here with the same tuple: tokens, requests, tokens a request, clock before
and after the dispatch, and its result. Whatever is the same for all steps of one shape (names,
phase, reason, graph launches) is worked out once and kept; the rest is arithmetic and two calls of
``struct.pack_into``. A step of the common kind costs about 0.6 µs here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, NamedTuple

from graphdiag_collectors.blocks import NULL, RARE_AT, WIDE_WIDTH, pack_rare, pack_wide
from graphdiag_collectors.channel import Channel
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.vllm_batch import context_of, phase_of, produced_in
from graphdiag_collectors.vllm_reasons import Batch, mode_name

MOST_SHAPES = 8192
"""Shapes remembered; where there are more, all are worked out again."""
MOST_WAITING = 8
"""Steps whose result may be under way; more than that, and nobody fetches results here."""

Begun = tuple[Any, int, int]
"""Scheduler output, clock at the start, clock when the model was launched."""
Asked = tuple[Any, ...]
"""Tokens, requests, tokens a request, clock before, clock after, result of the dispatch."""


Shape = tuple[int, int, int, int, int, "tuple[str | None, ...]"]
"""What all steps of one shape have in common: label, bucket, graph launches, active adapters,
adapters of the graph, and the words behind the label. A plain tuple unpacks fastest."""


class Chosen(NamedTuple):
    """What became of a batch, in words."""

    mode: str
    outcome: str | None
    reason: str | None
    artifact: str | None
    bucket: int
    replays: int
    replayed: int


Row = tuple[Shape, int, int, int, int, int, int, int]
"""A step that waits for its result: shape, start, tokens, requests, tokens a request, context,
ns of the dispatch, ns until the model was launched."""


class Steps:
    """The steps of one model runner.

    Parameters
    ----------
    recorder
        Where they go.
    choose
        Says what became of a batch: given the runner, the batch, the descriptor and the mode.
    describe
        Returns the run's configuration as it is now.
    stride
        Tokens a decoding request has in a step; None where any number will do.
    v2
        Whether the dispatch returns a descriptor that holds its mode.
    lora, encoder_decoder, deferred
        Whether adapters are configured, the model has an encoder in front of its decoder, results
        are fetched by another thread.
    steady
        Whether a decode step adds its tokens to the context of the one before: no speculation,
        whose tokens may be rejected, and no pipeline, whose stages take turns in batches.
    ranks
        Data-parallel ranks that agree on each step.
    """

    def __init__(
        self,
        recorder: Recorder,
        choose: Callable[[Any, Batch, Any, Any], Chosen],
        describe: Callable[[], Mapping[str, Any]],
        *,
        stride: int | None = 1,
        v2: bool = False,
        lora: bool = False,
        encoder_decoder: bool = False,
        deferred: bool = False,
        steady: bool = True,
        ranks: int = 1,
    ) -> None:
        self.recorder = recorder
        self.channel = recorder.channel(runner="target", axis="tokens")
        self.late = recorder.channel(runner="target", axis="tokens") if deferred else None
        self.draft = recorder.channel(runner="draft", axis="tokens")
        self.stale = True
        self.serving = False
        self.pieces: dict[str, int] = {}
        self.graph_bytes: int | None = None
        self.requested_loras: int | None = 0
        self.ranks = ranks
        self.stride = stride
        self._told: Mapping[str, Any] | None = None
        self._choose = choose
        self._describe = describe
        self._v2 = v2
        self._lora = lora
        self._special = lora or encoder_decoder
        self._lane = self.channel.wide
        self._steady = steady
        self._plain = stride is not None
        self._shapes: dict[Any, Shape] = {}
        self._reqs = -1
        self._kv = 0
        self._waiting: deque[Row] = deque()
        self._result = 0

    def changed(self) -> None:
        """Forget what was worked out: the engine's configuration or its graphs changed."""
        self.stale = True
        self._shapes.clear()

    def finish(self, runner: Any, begun: Begun, asked: Asked, output: Any, end: int) -> None:
        """Write a step whose result is ``output``, or keep it until that has been fetched."""
        plan, start, launched = begun
        tokens, reqs, query, began, chosen, result = asked
        if began < start:
            return  # left over from a step that raised
        if self._v2:
            key = result[0]
            mode = key.cg_mode
        else:
            mode, key = result[0], result[1]
        if tokens is None:  # an older dispatch, which is asked with padded sizes
            tokens, reqs = plan.total_num_scheduled_tokens, len(plan.num_scheduled_tokens)
            query = max(plan.num_scheduled_tokens.values())
        value = mode._value_
        bucket = key.num_tokens if value else tokens
        if query and tokens == query * reqs and (query == self.stride or not self.stride):
            if (
                query == 1
                and reqs == self._reqs
                and self._steady
                and not plan.scheduled_new_reqs
                and not plan.finished_req_ids
            ):
                kv = self._kv + tokens
            else:
                kv = context_of(plan, tokens)
            name = bucket * 4 + value if self._plain else (value, bucket, query)
            produced = reqs if query == 1 else None
        else:
            query, produced = NULL, None
            kv = context_of(plan, tokens)
            name = (value, bucket, phase_of(plan))
        self._reqs = reqs
        self._kv = kv
        extra = None
        if self._special:
            extra = self._extra(runner, plan, key)
            name = (name, extra)
        try:
            shape = self._shapes[name]
        except KeyError:
            shape = self._shape(name, runner, plan, (tokens, reqs, query), extra, key, mode)
        if self.late is not None:
            row = (shape, start, tokens, reqs, query, kv, chosen - began, launched - start)
            if not hasattr(output, "get_output"):
                self._record(self.channel, row, end, produced or produced_in(output))
                return
            self._waiting.append(row)
            output._graphdiag_row = (self, row)
            if len(self._waiting) > MOST_WAITING:
                self._record(self.channel, self._waiting.popleft(), None, NULL)
            return
        if produced is None:
            produced = produced_in(output)
        label, bucket, replays, loras, replayed, _ = shape
        try:
            lane = self._lane
            offset = lane.offset
            # fmt: off
            pack_wide(
                lane.block, offset, start * 1e-9, end * 1e-9, tokens, bucket, label, self._lora,
                NULL, NULL, kv, chosen - began, launched - start,
                reqs, tokens, produced, query, replays,
            )
            if self._lora:
                pack_rare(
                    lane.block, offset + RARE_AT, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                    loras, replayed, NULL, NULL, NULL, NULL, NULL,
                )
            # fmt: on
            lane.offset = offset + WIDE_WIDTH
        except Exception:  # no block yet, or a full one
            row = (shape, start, tokens, reqs, query, kv, chosen - began, launched - start)
            self._record(self.channel, row, end, produced)

    def fetched(self, row: Row, output: Any) -> None:
        """Write a step whose result the engine's output thread has just got."""
        late = self.late
        try:
            self._waiting.remove(row)
        except (ValueError, IndexError):
            return  # written already, or to be written, without its end
        if late is None:
            return
        end = perf_counter_ns()
        shape, start, tokens, reqs, query, kv, took, hosted = row
        # A step begins when it was scheduled, or when the one before it was done.
        start = max(start, self._result)
        self._result = end
        produced = reqs if query == 1 else produced_in(output)
        label, bucket, replays, loras, replayed, _ = shape
        try:
            lane = late.wide
            offset = lane.offset
            # fmt: off
            pack_wide(
                lane.block, offset, start * 1e-9, end * 1e-9, tokens, bucket, label, self._lora,
                NULL, NULL, kv, took, hosted, reqs, tokens, produced, query, replays,
            )
            if self._lora:
                pack_rare(
                    lane.block, offset + RARE_AT, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                    loras, replayed, NULL, NULL, NULL, NULL, NULL,
                )
            # fmt: on
            lane.offset = offset + WIDE_WIDTH
        except Exception:  # no block yet, or a full one
            self._record(late, (shape, start, *row[2:]), end, produced)

    def drain(self) -> None:
        """Write the steps whose results nobody fetched."""
        while self._waiting:
            self._record(self.channel, self._waiting.popleft(), None, NULL)

    def synthetic(
        self, kind: str, runner: Any, tokens: int, asked: Asked | None, clock: tuple[int, int]
    ) -> None:
        """Write a step that served no request."""
        chosen: Chosen | None = None
        reqs = took = None
        if asked is not None:
            result = asked[5]
            mode, key = (result[0].cg_mode, result[0]) if self._v2 else (result[0], result[1])
            tokens, reqs = asked[0] or tokens, asked[1]
            took = asked[4] - asked[3]
            if mode._value_:
                chosen = self._choose(runner, self._batch(tokens, reqs or 0, 0, None), key, mode)
        bucket = chosen.bucket if chosen else None
        outcome = "capture" if kind == "capture" else None if chosen else "eager"
        self.channel.record(
            tokens,
            bucket,
            chosen.artifact if chosen else None,
            chosen.mode if chosen else "eager",
            outcome,
            kind=kind,
            clock=(clock[0] * 1e-9, clock[1] * 1e-9),
            num_reqs=reqs,
            num_tokens=tokens,
            dispatch_ns=took,
            replays=chosen.replays if chosen and kind != "capture" else None,
        )

    def refresh(self) -> None:
        """Write the run's configuration, if it is not what was written last."""
        if self.stale:
            self.stale = False
            config = self._describe()
            if config != self._told:
                self._told = config
                self.recorder.run(config)

    def _record(self, channel: Channel, row: Row, end: int | None, produced: int | None) -> None:
        (_, bucket, replays, loras, replayed, words), start, tokens, reqs, query, kv = row[:6]
        phase, mode, outcome, reason, artifact = words
        channel.record(
            tokens,
            bucket,
            artifact,
            mode,
            outcome,
            reason,
            (start * 1e-9, float("nan") if end is None else end * 1e-9),
            phase=phase,
            num_reqs=reqs,
            num_tokens=tokens,
            kv_tokens=kv,
            tokens_out=produced,
            query_len=query,
            replays=replays,
            dispatch_ns=row[6],
            host_ns=row[7],
            loras=loras,
            loras_replayed=replayed,
        )

    def _extra(self, runner: Any, plan: Any, key: Any) -> tuple[int, int, bool]:
        """Return active adapters, those of the graph, and whether encoder input is there."""
        loras = 0
        if self._lora:
            active = getattr(runner, "input_batch", None)
            active = getattr(active, "lora_id_to_lora_request", None)
            if self._v2:
                loras = self.requested_loras or 0
            elif active is not None:
                loras = len(active)
        replayed = getattr(key, "num_active_loras", int(bool(getattr(key, "has_lora", False))))
        return loras, replayed, bool(getattr(plan, "scheduled_encoder_inputs", None))

    def _batch(
        self, tokens: int, reqs: int, query: int, extra: tuple[int, int, bool] | None
    ) -> Batch:
        loras, _, encoder = extra or (0, 0, False)
        return Batch(tokens, reqs, query, loras, encoder, encoder and self._v2, self.ranks)

    def _shape(
        self,
        name: Any,
        runner: Any,
        plan: Any,
        sizes: tuple[int, int, int],
        extra: tuple[int, int, bool] | None,
        key: Any,
        mode: Any,
    ) -> Shape:
        """Work out a shape that was not seen yet; the first after a change tells the run's."""
        self.serving = True
        self.refresh()
        tokens, reqs, query = sizes
        if query > 0:
            phase: str | None = "decode" if query == 1 else "verify"
        else:
            query, phase = 0, phase_of(plan)
        batch = self._batch(tokens, reqs, query, extra)
        chosen = self._choose(runner, batch, key, mode)
        # The order of `labels.Words`: runner, phase, axis, kind, mode, outcome, reason, artifact.
        code = (None, phase, None, None, *chosen[:4])
        labels = (self.late or self.channel).labels
        label = labels.codes.get(code)
        if label is None:
            label = labels.add(code)
        loras = batch.loras if self._lora else NULL
        replayed = chosen.replayed if self._lora and chosen.artifact else NULL
        words = (phase, *chosen[:4])
        shape = (label, chosen.bucket, chosen.replays, loras, replayed, words)
        if len(self._shapes) >= MOST_SHAPES:
            self._shapes.clear()
        self._shapes[name] = shape
        return shape


def chosen_of(
    pieces: Mapping[str, int], key: Any, mode: Any, breakable: bool, reason: str | None
) -> Chosen:
    """Return the words for a batch that got a graph."""
    word = mode_name(mode).lower()
    if word == "piecewise" and breakable:
        word = "breakable"
    replayed = getattr(key, "num_active_loras", int(bool(getattr(key, "has_lora", False))))
    launches = 1 if word == "full" else pieces.get(word, NULL)
    return Chosen(word, None, reason, artifact_of(key, word), key.num_tokens, launches, replayed)


def artifact_of(key: Any, word: str, owner: str = "") -> str:
    """Return the name of a captured graph, the same where it is captured and where it replays.

    ``full/16`` for 16 tokens; ``/q4`` where it serves four tokens a request only, ``/lora5`` for
    one captured with five adapters.
    """
    name = f"{owner}{word}/{key.num_tokens}"
    count = getattr(key, "uniform_token_count", None)
    if count is None and getattr(key, "uniform", False) and getattr(key, "num_reqs", None):
        count = key.num_tokens // key.num_reqs
    if count is not None and count > 1:
        name += f"/q{count}"
    loras = getattr(key, "num_active_loras", int(bool(getattr(key, "has_lora", False))))
    return f"{name}/lora{loras}" if loras else name
