"""From a forward that is over to its row: what the engine's thread does at the end of every step.

Whatever is the same for all steps of one sort is worked out once and kept: names and sizes in a
:class:`Graph`, words and codes in a :class:`Sort`. A usual step is then one call of
``struct.pack_into``; others are recorded by name. Times are seconds of ``perf_counter``, and
``NULL`` stands for a number that is not known.
"""

from __future__ import annotations

from typing import Any

from graphdiag_collectors import profiler
from graphdiag_collectors.blocks import NULL
from graphdiag_collectors.recorder import Recorder
from graphdiag_collectors.sglang_lane import ROW_WIDTH, Shape, StepChannel, pack_row
from graphdiag_collectors.sglang_words import MODES, UNKNOWN_MODE, Mode

NOT_KNOWN = float("nan")
"""A time that is not known."""

Fate = Any
"""What became of a step: its :class:`Graph` if that is all there is to say, else a tuple of the
graph or None, whether graphs are on for such a step, the reason and the kind."""

UsualRow = tuple[Any, ...]
"""A forward that is over, as most are: its :class:`Sort`, code, when it was entered and when it
returned, seconds to decide and to launch graphs, KV tokens, rows asked for, requests, tokens. A
plain tuple is made and taken apart fastest."""

Row = tuple[Any, ...]
"""Any forward that is over: sort, :data:`Fate`, when it was entered and when it returned, seconds
to decide and to launch graphs, KV tokens, rows asked for, requests, tokens, tokens a request,
adapters, graph launches, the step of a profile window that it is."""

USUAL_MODES = ("DECODE", "EXTEND", "MIXED", "TARGET_VERIFY")
"""Forward modes that the engine's own batches mostly have."""

USUAL = 10
"""Length of a usual row, which no other has."""


class Graph:
    """What all replays of one captured graph have in common.

    Attributes
    ----------
    name, size, mode
        Artifact, bucket and mode of the schema.
    launches
        Graph launches of one replay.
    runner
        The engine's runner that owns it.
    drafts
        Whether a drafter replays it.
    in_tokens
        Whether its bucket counts tokens although the batch is one of decode.
    gathers
        Whether the largest data-parallel rank decides on the bucket.
    """

    __slots__ = (*("drafts", "gathers", "in_tokens", "launches", "mode", "name", "runner", "size"),)

    def __init__(self, name: str | None, size: int, mode: str, launches: int) -> None:
        self.name = name
        self.size = size
        self.mode = mode
        self.launches = launches
        self.runner: Any = None
        self.drafts = self.in_tokens = self.gathers = False


SOME_GRAPH = Graph(None, NULL, "full", 0)
"""One whose replay was not seen: that it ran is all that is known."""


class Sort:
    """All forwards of one model in one forward mode of the engine.

    Attributes
    ----------
    channel, lane
        Where the rows go.
    what, kind
        The forward mode in our words.
    target
        Whether the model is the target, not a drafter.
    synchronous
        Whether a forward has its result when it returns, as on a CPU.
    in_tokens
        Whether rows are asked for in tokens.
    one_each
        Whether a request has one token, so that tokens need not be counted.
    verifies, query
        Whether it verifies drafts, and then tokens a request.
    split
        Whether one step may take several forwards, of a group of layers each.
    yields
        Whether each request gets one token out of it.
    codes
        Codes of usual rows, by their fate and graph launches.
    """

    __slots__ = (
        *("_ragged", "_runner", "_widths", "channel", "codes", "in_tokens", "kind"),
        *(
            "lane",
            "one_each",
            "query",
            "split",
            "synchronous",
            "target",
            "verifies",
            "what",
            "yields",
        ),
    )

    def __init__(
        self, channel: StepChannel, runner: str, synchronous: bool, what: Mode, name: str = ""
    ) -> None:
        self.channel = channel
        self.lane = channel.usual
        self.what = what
        self.kind = what.kind
        self.target = runner == "target"
        self.synchronous = synchronous
        self.in_tokens = what.axis == "tokens"
        self.one_each = name == "DECODE"
        self.split = name == "SPLIT_PREFILL"
        self.yields = what.phase == "decode" and self.target
        self.codes: dict[Fate, int] = {}
        self.verifies = what.phase == "verify"
        self.query = NULL
        self._runner = runner
        self._ragged: Sort | None = None
        self._widths: dict[int, Sort] = {}

    def of_width(self, query: int) -> Sort:
        """Return the same sort with ``query`` tokens a request."""
        found = self._widths.get(query)
        if found is None:
            found = Sort(self.channel, self._runner, self.synchronous, self.what)
            found.query = query
            self._widths[query] = found
        return found

    def counted_in_tokens(self) -> Sort:
        """Return the same sort with its buckets in tokens, as a ragged verify has them."""
        if self._ragged is None:
            what = self.what._replace(axis="tokens")
            self._ragged = Sort(self.channel, self._runner, self.synchronous, what)
            self._ragged.query = self.query
        return self._ragged

    def code(self, fate: Fate) -> int:
        """Return the code of usual rows with a fate that is new."""
        graph, outcome, reason, kind = _told(fate)
        what = self.what
        mode, artifact, bucket, replays = "eager", None, NULL, 0
        if graph is not None:
            mode, artifact = graph.mode, graph.name
            bucket, replays = graph.size, graph.launches
        words = (None, what.phase, what.axis, kind, mode, outcome, reason, artifact)
        label = self.channel.labels.codes.get(words)
        if label is None:
            label = self.channel.labels.add(words)
        self.codes[fate] = code = self.lane.code(Shape(label, bucket, replays, self.query))
        return code

    def whole(self, usual: UsualRow) -> Row:
        """Return a usual row as any other."""
        fate = next(fate for fate, code in self.codes.items() if code == usual[1])
        graph = _told(fate)[0]
        launches = 0 if graph is None else graph.launches
        return (self, fate, *usual[2:], self.query, NULL, launches, None)


class Model:
    """What stays the same for all forwards of one model while one recorder records.

    Attributes
    ----------
    recorder
        Whose it is; with another recorder the model is met anew.
    loras
        Whether it serves adapters.
    sorts
        By the engine's forward mode; :meth:`sort` makes those that are not there yet.
    usual
        Those of them whose rows need say no more than most do.
    """

    __slots__ = ("_channel", "_runner", "_synchronous", "loras", "recorder", "sorts", "usual")

    def __init__(
        self, recorder: Recorder, channel: StepChannel, runner: str, synchronous: bool, loras: bool
    ) -> None:
        self.recorder = recorder
        self.loras = loras
        self.sorts: dict[Any, Sort] = {}
        self.usual: dict[Any, Sort] = {}
        self._channel = channel
        self._runner = runner
        self._synchronous = synchronous

    def sort(self, mode: Any, what: Mode | None = None) -> Sort:
        """Return the sort of forwards in ``mode``, which is ``what`` in our words."""
        found = self.sorts.get(mode)
        if found is None:
            name = str(getattr(mode, "name", ""))
            what = what or MODES.get(name, UNKNOWN_MODE)
            found = Sort(self._channel, self._runner, self._synchronous, what, name)
            self.sorts[mode] = found
            if name in USUAL_MODES and not self.loras:
                self.usual[mode] = found
        return found


def write_usual(
    row: UsualRow, begin: float, end: float, queued: int = NULL, result: Any = None
) -> None:
    """Record a usual forward as a step from ``begin`` to ``end``; ``result`` is the engine's."""
    # fmt: off
    sort, code, entered, returned, dispatch, launch, kv, requested, reqs, tokens = row
    tokens_out = NULL
    if sort.yields:
        tokens_out = reqs
    elif sort.verifies and result is not None:
        tokens_out = accepted_in(result)
    lane = sort.lane
    try:
        offset = lane.offset
        pack_row(
            lane.block, offset, begin, end, entered, returned, dispatch, launch,
            kv, requested, reqs, tokens, tokens_out, queued, code,
        )
        lane.offset = offset + ROW_WIDTH
    except Exception:  # no block yet, or a full one
        sort.channel.place_row(
            begin, end, entered, returned, dispatch, launch,
            kv, requested, reqs, tokens, tokens_out, queued, code,
        )
    # fmt: on


def write(
    row: Row,
    begin: float,
    end: float,
    queued: int = NULL,
    result: Any = None,
    preempted: int = NULL,
) -> None:
    """Record any forward as a step from ``begin`` to ``end``, NaN where that is not known."""
    # fmt: off
    (
        sort, fate, entered, returned, dispatch, launch, kv, requested, reqs, tokens, query, loras,
        replays, step,
    ) = row
    # fmt: on
    graph, outcome, reason, kind = _told(fate)
    tokens_out = NULL if result is None else accepted_in(result)
    if tokens_out == NULL and sort.yields:
        tokens_out = reqs
    profiler.record(
        step,
        sort.channel,
        requested=requested,
        bucket=NULL if graph is None else graph.size,
        artifact=None if graph is None else graph.name,
        mode="eager" if graph is None else graph.mode,
        outcome=outcome,
        reason=reason,
        clock=(begin, end),
        phase=sort.what.phase,
        axis=sort.what.axis,
        kind=kind,
        num_reqs=reqs,
        num_tokens=tokens,
        kv_tokens=kv,
        query_len=query,
        loras=loras,
        tokens_out=tokens_out,
        replays=replays,
        dispatch_ns=round(dispatch * 1e9),
        host_ns=round((returned - entered) * 1e9),
        graph_launch_ns=NULL if graph is None else round(launch * 1e9),
        queued=queued,
        preempted=preempted,
    )


def accepted_in(result: Any) -> int:
    """Return tokens a verified batch produced: the accepted drafts, and one more for each."""
    accepted = getattr(result, "num_correct_drafts_per_req_cpu", None)
    if not accepted:
        return NULL
    own = getattr(result, "num_non_draft_tokens_per_req", 1)
    return int(sum(accepted)) + int(own) * len(accepted)


def _told(fate: Fate) -> tuple[Graph | None, str | None, str | None, str | None]:
    """Return graph, outcome, reason and kind of a fate; the outcome of a replay follows."""
    if type(fate) is not tuple:
        return fate, None, None, None
    graph, expects, reason, kind = fate
    if graph is not None:
        return graph, None, reason, kind
    return None, "fallback" if expects else "eager", reason, kind
