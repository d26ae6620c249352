"""What an SGLang log has told of the engine so far: its graphs by phase, and its sampling."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from graphdiag.importers import log_values as values
from graphdiag.importers.log_run import Run
from graphdiag.importers.log_sglang_capture import Capture, Captures, graph_mode

DECODE_LOG_INTERVAL = 40
"""Forward steps between two decode lines, unless ``--decode-log-interval`` says otherwise."""

_LONGEST_INTERVAL = 10**6

_LARGEST_RANK = 10**6

_RANK = re.compile(rb"([A-Z_]+)(\d{1,5})")


@dataclass
class PhaseGraphs:
    """The graphs of one phase.

    ``on`` is None while the log has not told whether the configuration wants graphs; ``sizes`` are
    those captured, else those configured, ascending.
    """

    mode: str
    on: bool | None = None
    sizes: list[int] = field(default_factory=list)
    captured: bool = False

    def largest(self) -> int | None:
        """Return the largest size, or None where the log does not tell."""
        return self.sizes[-1] if self.sizes else None

    def bucket(self, requested: np.ndarray) -> np.ndarray:
        """Return the smallest size that holds each of ``requested``, -1 where none does."""
        table = np.array([*self.sizes, -1], np.int64)
        return table[np.searchsorted(table[:-1], requested, side="left")]


class Engine:
    """One engine start and all that its lines have told."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.decode = PhaseGraphs("full")
        self.prefill = PhaseGraphs("breakable")
        self.captures = Captures()
        self.padding = True
        self.interval = DECODE_LOG_INTERVAL
        self.draft_tokens: int | None = None
        self.dp_attention = False
        self.keyed = False
        self.settled = False
        """Whether the run has come past its arguments: then new arguments are a new start."""
        self.graph_bytes: dict[str, int] = {}
        self._tp: int | None = None
        self._pp: int | None = None
        run.set("axis", "requests")
        run.note("The log has no time zone; its times are taken as UTC.")

    def rank(self, label: bytes) -> int | None:
        """Return the global rank that a prefix such as `` DP1 TP3`` names, None where unclear."""
        index = {name: int(number) for name, number in _RANK.findall(label)}
        tp, pp, dp = index.get(b"TP", 0), index.get(b"PP", 0), index.get(b"DP", 0)
        if not index.keys() & {b"TP", b"PP", b"DP"}:
            return None
        if self.dp_attention:
            dp = 0  # attention groups lie inside the tensor-parallel ranks
        if not (pp or dp):
            return tp
        if self._tp is None or self._pp is None:
            return None
        rank = tp + self._tp * (pp + self._pp * dp)
        return rank if rank <= _LARGEST_RANK else None

    def read_arguments(self, text: str) -> None:
        """Read a ``server_args=…`` line, with the field names of any version."""
        run = self.run
        self._tp = values.integer(values.field(text, "tp_size")) or 1
        self._pp = values.integer(values.field(text, "pp_size")) or 1
        replicas = values.integer(values.field(text, "dp_size"))
        attention = values.boolean(values.field(text, "enable_dp_attention"))
        self.dp_attention = bool(attention) and (replicas or 1) > 1
        self.padding = not values.boolean(values.field(text, "disable_cuda_graph_padding"))
        self.draft_tokens = values.integer(values.field(text, "speculative_num_draft_tokens"))
        interval = values.integer(values.field(text, "decode_log_interval"))
        if interval and 0 < interval <= _LONGEST_INTERVAL:
            self.interval = interval
        run.set("tensor_parallel", self._tp)
        run.set("data_parallel", replicas)
        run.set("padding", self.padding)
        run.set("max_num_seqs", values.integer(values.field(text, "max_running_requests")))
        run.set("token_budget", values.integer(values.field(text, "chunked_prefill_size")))
        if self.draft_tokens:
            # SGLang counts the verified tokens of a request, of which one is not drafted.
            run.set("speculative_tokens", self.draft_tokens - 1)
        if values.boolean(values.field(text, "enable_lora")):
            run.set("lora", values.integer(values.field(text, "max_loras_per_batch")))
        self._read_graphs(text, cpu=values.word(values.field(text, "device")) == "cpu")
        self._publish()

    def read_limits(self, text: str) -> None:
        """Read the line with the resolved limits, ``max_total_num_tokens=…``."""
        self.settled = True
        self.run.set("kv_tokens", values.integer(values.field(text, "max_total_num_tokens")))
        self.run.set("max_num_seqs", values.integer(values.field(text, "max_running_requests")))
        self.run.set("token_budget", values.integer(values.field(text, "chunked_prefill_size")))
        self._publish()

    def read_disabled(self, text: str) -> None:
        """Read a line that says why graphs were switched off."""
        self.run.note(f"The engine says: {text[:300]}")
        if text.startswith(("Disable prefill", "Breakable")):
            self.prefill.on = False
        else:
            self.decode.on = False
        self._publish()

    def take_capture(self, capture: Capture) -> None:
        """Learn from a finished capture."""
        self.settled = True
        sizes = capture.known_sizes()
        if sizes is None and capture.total is None:
            self.run.note(
                f"The log tells how long the {capture.role} capture took, but not which graphs."
            )
        if capture.used is not None:
            self.graph_bytes[capture.role] = capture.used
            self.run.set("graph_bytes", sum(self.graph_bytes.values()))
        phase = {"decode": self.decode, "prefill": self.prefill}.get(capture.role)
        if phase is not None:
            phase.on, phase.captured, phase.mode = True, True, capture.mode
            if sizes and (capture.unit == "bs" or phase is self.prefill):
                phase.sizes = sorted(sizes)
        self._publish()

    def saw_replay(self, phase: PhaseGraphs) -> None:
        """Learn that a step of ``phase`` was replayed: graphs are on, whatever else was said."""
        if phase.on is not True:
            phase.on = True
            self._publish()

    def start_serving(self) -> None:
        """Learn that steps begin: what was not captured by now is off."""
        self.settled = True
        if self.decode.captured and not self.prefill.captured and self.prefill.on is not False:
            if self.prefill.on:
                self.run.note(
                    "Prefill graphs are configured but none was captured; "
                    "prefill steps count as eager by configuration."
                )
            self.prefill.on = False
            self._publish()

    def _read_graphs(self, text: str, cpu: bool) -> None:
        """Read the graph settings; JSON, per-phase flags and the old names, in that order."""
        config = values.field(text, "cuda_graph_config") or ""
        off = values.boolean(values.field(text, "disable_cuda_graph"))
        for phase, name in ((self.decode, "decode"), (self.prefill, "prefill")):
            own = values.field(config, name) or ""
            backend = values.word(
                values.field(own, "backend") or values.field(text, f"cuda_graph_backend_{name}")
            )
            sizes = values.sizes(
                values.field(own, "bs") or values.field(text, f"cuda_graph_bs_{name}")
            )
            phase.sizes = sizes or phase.sizes
            phase.mode = graph_mode(backend) or phase.mode
            if backend is not None:
                phase.on = backend != "disabled"
            if values.boolean(values.field(text, f"disable_{name}_cuda_graph")):
                phase.on = False
        if not config:
            self.decode.sizes = values.sizes(values.field(text, "cuda_graph_bs")) or []
            self._read_piecewise(text)
            # A CPU has graphs only where it compiles; the capture lines will tell.
            if self.decode.on is None and off is not None and not cpu:
                self.decode.on = True
        if off:
            self.decode.on = self.prefill.on = False

    def _read_piecewise(self, text: str) -> None:
        enabled = values.boolean(values.field(text, "enable_piecewise_cuda_graph"))
        disabled = values.boolean(values.field(text, "disable_piecewise_cuda_graph"))
        if enabled is not None or disabled is not None:
            self.prefill.mode = "piecewise"
            self.prefill.on = bool(enabled) or disabled is False
            tokens = values.sizes(values.field(text, "piecewise_cuda_graph_tokens"))
            self.prefill.sizes = tokens or self.prefill.sizes

    def _publish(self) -> None:
        run = self.run
        if self.decode.sizes:
            run.set("capture_sizes", self.decode.sizes)
        phases = {"decode": self.decode, "prefill": self.prefill}
        run.set("graphs_off", [name for name, phase in phases.items() if phase.on is False])
        if self.decode.on is not None:
            run.set("mode", self.decode.mode if self.decode.on else "disabled")
