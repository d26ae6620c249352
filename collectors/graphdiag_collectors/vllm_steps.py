"""From a dispatch to a row: what the engine's thread does at the end of every step.

Both model runners come here with the same tuple: tokens, requests, tokens a request, clock before
and after the dispatch, and its result. Whatever is the same for all steps of one shape (names,
phase, reason, graph launches) is worked out once and kept under a code; the rest is a few
comparisons and one call of ``struct.pack_into``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableSequence
from typing import Any

from graphdiag_collectors import profiler
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.vllm_batch import (
    context_of,
    mixed_of,
    phase_of,
    preempted_in,
    produced_in,
    produced_singly,
)
from graphdiag_collectors.vllm_chosen import Chosen
from graphdiag_collectors.vllm_lane import ROW_WIDTH, Shape, pack_row, pack_single
from graphdiag_collectors.vllm_reasons import Batch
from graphdiag_collectors.vllm_rows import StepRows, Waiting, ns_of

MODES = 3
"""Values of the modes that a step runs in: none, piecewise, full."""
MOST_SHAPES = 8192
"""Shapes of a mode remembered; where there are more, all are worked out again."""
MOST_WAITING = 8
"""Steps whose result may be under way; more than that, and nobody fetches results here."""

Asked = tuple[Any, ...]
"""Tokens, requests, tokens a request, clock before, clock after, result of the dispatch, which
begins with mode and descriptor. Clocks are seconds of ``perf_counter``."""


class Steps(StepRows):
    """The steps of one model runner.

    Parameters
    ----------
    recorder
        Where they go.
    choose
        Says what became of a batch: given these steps, the runner, the batch, the descriptor and
        the mode.
    describe
        Returns the run's configuration as it is now.
    drafts, write_drafts
        Passes that drafters noted since the last step, and what writes them.
    stride
        Tokens a decoding request has in a step; None where any number will do.
    v2
        Whether the runner is the second one, which says itself how many adapters are active.
    lora, encoder_decoder, deferred
        Whether adapters are configured, the model has an encoder in front of its decoder, results
        are fetched by another thread.
    steady
        Whether a decode step adds its tokens to the context of the one before, and gives a request
        one token at most: no speculation, whose tokens may be rejected, and no pipeline, whose
        stages take turns in batches.
    ranks
        Data-parallel ranks that agree on each step.
    """

    def __init__(
        self,
        recorder: Recorder,
        choose: Callable[[Steps, Any, Batch, Any, Any], Chosen],
        describe: Callable[[Steps], Mapping[str, Any]],
        drafts: MutableSequence[Asked],
        write_drafts: Callable[[Steps, Iterable[Asked], float], None],
        *,
        stride: int | None = 1,
        v2: bool = False,
        lora: bool = False,
        encoder_decoder: bool = False,
        deferred: bool = False,
        steady: bool = True,
        ranks: int = 1,
    ) -> None:
        # First what every step reads, so that it lies together.
        self._drafts = drafts
        # Tokens a request of the common step, which is written with the least work; -1 for none.
        # A runner with a drafter is never steady.
        special = lora or encoder_decoder
        self._common = 1 if steady and stride in (1, None) and not special else -1
        self._reqs = -1
        self._kv = 0
        self._shapes: list[dict[Any, int]] = [{} for _ in range(MODES)]
        self._result = 0.0
        super().__init__(recorder, deferred)
        self.recorder = recorder
        self.draft = recorder.channel(runner="draft", axis="tokens")
        self.stale = True
        self.serving = False
        self.pieces: dict[str, int] = {}
        self.graph_bytes: int | None = None
        self.requested_loras: int | None = 0
        self.ranks = ranks
        self.stride = stride
        self._v2 = v2
        self._told: Mapping[str, Any] | None = None
        self._choose = choose
        self._describe = describe
        self._write_drafts = write_drafts
        self._lora = lora
        self._special = special
        self._steady = steady

    def changed(self) -> None:
        """Forget what was worked out: the engine's configuration or its graphs changed."""
        self.stale = True
        for shapes in self._shapes:
            shapes.clear()

    def finish(self, runner: Any, output: Any, end: float) -> None:
        """Write a step whose result is ``output``, or keep it until that has been fetched."""
        asked = runner._graphdiag_asked
        if asked is None:
            return
        runner._graphdiag_asked = None
        tokens, reqs, query, began, chosen, result = asked
        start = runner._graphdiag_start
        if began < start:
            return  # left over from a step that raised
        held = runner._graphdiag_held
        if held:
            runner._graphdiag_held = False
            profiler.step_ended(held)
        plan = runner._graphdiag_plan
        mode = result[0]
        key = result[1]
        value = mode._value_
        if query == self._common and tokens == reqs:
            produced: int | None = reqs
            name: Any = key.num_tokens if value else tokens
            if reqs == self._reqs and not plan.scheduled_new_reqs and not plan.finished_req_ids:
                kv = self._kv + tokens
            else:
                kv = context_of(plan, tokens)
                self._reqs = reqs
                if getattr(plan, "preempted_req_ids", None):  # then there are fewer than before
                    name = (name, preempted_in(plan))
        else:
            if self._drafts:
                self._write_drafts(self, self._drafts, end)
                self._drafts.clear()
            if tokens is None:  # an older dispatch, which is asked with padded sizes
                tokens, reqs = plan.total_num_scheduled_tokens, len(plan.num_scheduled_tokens)
                query = max(plan.num_scheduled_tokens.values())
            produced = None
            if query and tokens == query * reqs and (query == self.stride or not self.stride):
                kv = context_of(plan, tokens)
                if query == 1:
                    produced = reqs
                name = (key.num_tokens if value else tokens, "uniform", query)
            else:
                phase, kv = mixed_of(plan, tokens)
                query = 0
                # An int is hashed much faster; only this phase has negative ones.
                name = -(key.num_tokens if value else tokens)
                if phase != "mixed":
                    name = (name, phase)
            self._reqs = reqs
            if self._special:
                name = (name, self._extra(runner, plan, key))
            if getattr(plan, "preempted_req_ids", None):
                name = (name, preempted_in(plan))
        self._kv = kv
        try:
            code = self._shapes[value][name]
        except KeyError:
            code = self._shape(value, name, runner, plan, (tokens, reqs, query), key, mode)
        late = self.late
        if late is not None and (type(output) is self.fetched_type or self.is_fetched(output)):
            # fmt: off
            result = [(
                self, held, start, began, chosen, runner._graphdiag_launched,
                kv, tokens, reqs, produced, code,
            )]
            # fmt: on
            output._graphdiag_row = result
            waiting = self.waiting
            waiting.append(result)
            if len(waiting) > MOST_WAITING:
                oldest = waiting.popleft()
                if oldest:
                    self.give_up(oldest)
            return
        if late is None and held is None:
            lane = self.lane
            # fmt: off
            try:
                offset = lane.offset
                if produced is None:
                    produced = self._produced(output)
                    pack_row(
                        lane.block, offset, start, end, began, chosen,
                        runner._graphdiag_launched, kv, tokens, code, reqs, produced,
                    )
                else:
                    pack_single(
                        lane.block, offset, start, end, began, chosen,
                        runner._graphdiag_launched, kv, tokens, code,
                    )
                lane.offset = offset + ROW_WIDTH
            except Exception:  # no block yet, or a full one
                self.rows.place_row(
                    start, end, began, chosen, runner._graphdiag_launched,
                    kv, tokens, code, reqs, produced,
                )
            # fmt: on
        else:
            if produced is None:
                produced = self._produced(output)
            # fmt: off
            self.record(
                self.channel, held, start, end, began, chosen, runner._graphdiag_launched,
                kv, tokens, reqs, produced, code,
            )
            # fmt: on

    @staticmethod
    def fetched(waiting: Waiting, output: Any, end: float) -> None:
        """Write a step whose result the engine's output thread has just got."""
        try:
            row = waiting.pop()
        except IndexError:
            return  # written already, without its end
        steps, held, start, began, chosen, launched, kv, tokens, reqs, produced, code = row
        # A step begins when it was scheduled, or when the one before it was done.
        before = steps._result
        steps._result = end
        if start < before:
            launched += before - start
            start = before
        # fmt: off
        if held is None:
            lane = steps.lane
            try:
                offset = lane.offset
                if produced is None:
                    produced = steps._produced(output)
                    pack_row(
                        lane.block, offset, start, end, began, chosen, launched,
                        kv, tokens, code, reqs, produced,
                    )
                else:
                    pack_single(
                        lane.block, offset, start, end, began, chosen, launched,
                        kv, tokens, code,
                    )
                lane.offset = offset + ROW_WIDTH
            except Exception:  # no block yet, or a full one
                steps.rows.place_row(
                    start, end, began, chosen, launched, kv, tokens, code, reqs, produced
                )
        else:
            if produced is None:
                produced = steps._produced(output)
            steps.record(
                steps.rows, held, start, end, began, chosen, launched,
                kv, tokens, reqs, produced, code,
            )
        # fmt: on

    def synthetic(
        self, kind: str, runner: Any, tokens: int, asked: Asked | None, clock: tuple[float, float]
    ) -> None:
        """Write a step that served no request."""
        chosen: Chosen | None = None
        reqs = took = None
        if asked is not None:
            result = asked[5]
            mode, key = result[:2]
            tokens, reqs = asked[0] or tokens, asked[1]
            took = ns_of(asked[4] - asked[3])
            if mode._value_:
                chosen = self._choose(
                    self, runner, self._batch(tokens, reqs or 0, 0, None), key, mode
                )
        bucket = chosen.bucket if chosen else None
        outcome = "capture" if kind == "capture" else None if chosen else "eager"
        self.channel.record(
            tokens,
            bucket,
            chosen.artifact if chosen else None,
            chosen.mode if chosen else "eager",
            outcome,
            kind=kind,
            clock=clock,
            num_reqs=reqs,
            num_tokens=tokens,
            dispatch_ns=took,
            replays=chosen.replays if chosen and kind != "capture" else None,
        )

    def refresh(self) -> None:
        """Write the run's configuration, if it is not what was written last."""
        if self.stale:
            self.stale = False
            config = self._describe(self)
            if config != self._told:
                self._told = config
                self.recorder.run(config)

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

    def _produced(self, output: Any) -> int:
        """Return how many tokens were sampled."""
        produced = produced_singly(output) if self._steady else produced_in(output)
        return NULL if produced is None else produced

    def _shape(
        self,
        value: int,
        name: Any,
        runner: Any,
        plan: Any,
        sizes: tuple[int, int, int],
        key: Any,
        mode: Any,
    ) -> int:
        """Work out a shape that was not seen yet; the first after a change tells the run's."""
        self.serving = True
        self.refresh()
        tokens, reqs, query = sizes
        if query:
            phase: str | None = "decode" if query == 1 else "verify"
        else:
            phase = phase_of(plan)
        extra = self._extra(runner, plan, key) if self._special else None
        gone = preempted_in(plan)
        batch = self._batch(tokens, reqs, query, extra)
        chosen = self._choose(self, runner, batch, key, mode)
        # The order of `labels.Words`: runner, phase, axis, kind, mode, outcome, reason, artifact.
        words = (None, phase, None, None, *chosen[:4])
        labels = self.rows.labels
        label = labels.codes.get(words)
        if label is None:
            label = labels.add(words)
        loras = batch.loras if self._lora else NULL
        replayed = chosen.replayed if self._lora and chosen.artifact else NULL
        shape = Shape(
            label, chosen.bucket, query or NULL, chosen.replays, loras, replayed, gone or NULL
        )
        shapes = self._shapes[value]
        if len(shapes) >= MOST_SHAPES:
            shapes.clear()
        shapes[name] = code = self.lane.code(shape)
        return code
