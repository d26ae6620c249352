"""An optional Prometheus endpoint: the totals of what this process records, over HTTP.

``GRAPHDIAG_METRICS=[host:]port`` opens one with every recorder, :func:`serve` opens one by hand.
The totals are counted where the trace is written, batch by batch; the engine's thread does nothing
for them. Nothing here raises into the engine: what cannot be served is said once on stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from graphdiag_collectors.live_totals import (
    DROPPED_ROWS,
    HOOK_FAILURES,
    METRICS,
    STEP_SECONDS,
    LiveTotals,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from graphdiag_collectors.recorder import Recorder
    from graphdiag_collectors.writer import Writer

METRICS_VARIABLE = "GRAPHDIAG_METRICS"
LOOPBACK = "127.0.0.1"
MORE_PORTS = 32
"""Ports tried after the first, so that the processes of one engine can share a setting."""
HIGHEST_PORT = 65_535
CLIENT_SECONDS = 10.0
"""How long a client may take to ask or to read before it is let go."""
_ADDRESS = re.compile(r"((\[(?P<ipv6>[^][]+)\]|(?P<host>[^][:]+)):)?(?P<port>[0-9]{1,5})")
LABELS = ("rank",)
"""Labels that every metric has; empty where the rank is not known."""


def serve(recorder: Recorder, port: int = 0, host: str = LOOPBACK) -> Endpoint | None:
    """Serve what ``recorder`` records from now on; the address is printed to stderr.

    Parameters
    ----------
    port
        Where it is in use, the next ones up to 32 more are tried; 0 is any free one.
    host
        Address to listen on; by default only this machine is answered.

    Returns
    -------
    Endpoint | None
        None where it cannot be served, which is said on stderr. It closes with the recorder.
    """
    recorder._revive()
    writer = recorder._writer
    endpoint = Endpoint(writer, recorder._rank)
    if not endpoint.listen(host, port):
        return None
    threading.Thread(target=endpoint.answer, name="graphdiag-metrics", daemon=True).start()
    return endpoint


def serve_from_environment(writer: Writer, rank: int | None) -> None:
    """Serve what ``writer`` writes where ``GRAPHDIAG_METRICS`` says so; never raises.

    It counts from the first row on. Finding a port, and importing what serves it, is left to the
    endpoint's own thread.
    """
    told = os.environ.get(METRICS_VARIABLE)
    if not told:
        return
    try:
        host, port = parse_address(told)
        endpoint = Endpoint(writer, rank)

        def work() -> None:
            if endpoint.listen(host, port):
                endpoint.answer()

        threading.Thread(target=work, name="graphdiag-metrics", daemon=True).start()
    except Exception as error:
        _say(f"no metrics endpoint ({error}); recording goes on")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``[host:]port``, an IPv6 host in brackets.

    Raises
    ------
    ValueError
        When the text is nothing like that.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > HIGHEST_PORT:
        raise ValueError(f"{METRICS_VARIABLE}={text!r} is not [host:]port, such as 9400")
    return match["ipv6"] or match["host"] or LOOPBACK, int(match["port"])


class Endpoint:
    """The totals of one writer's rows and the socket that tells them; an observer of the writer.

    Attributes
    ----------
    url
        Where the metrics are, once it listens.
    totals
        What is told.
    """

    def __init__(self, writer: Writer, rank: int | None) -> None:
        self.url: str | None = None
        self.totals = LiveTotals()
        self._writer = writer
        self._rank = "" if rank is None else str(rank)
        self._server: _Server | None = None
        self._closed = False
        self._asleep, self._alarm = socket.socketpair()
        writer.observers.append(self)

    def see(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch that was written."""
        self.totals.add(batch)

    def listen(self, host: str, port: int) -> bool:
        """Take the first free port from ``port`` on; without one, say so and stop counting."""
        try:
            handler = self._handler()
        except ImportError:
            why = "prometheus-client is not installed: pip install 'graphdiag[metrics]'"
            return self._give_up(why)
        except Exception as error:
            return self._give_up(f"{type(error).__name__}: {error}")
        if not 0 <= port <= HIGHEST_PORT:
            return self._give_up(f"{port} is no port")
        last = port if port == 0 else min(port + MORE_PORTS, HIGHEST_PORT)
        for candidate in range(port, last + 1):
            try:
                self._server = server = _Server(host, candidate, handler)
                server.server_bind()
                server.server_activate()
            except OSError as error:
                self._close_server()
                if error.errno != errno.EADDRINUSE:
                    return self._give_up(f"{host}:{candidate}: {error.strerror or error}")
            except Exception as error:
                return self._give_up(f"{type(error).__name__}: {error}")
            else:
                shown = f"[{host}]" if ":" in host else host
                url = f"http://{shown}:{server.server_address[1]}/metrics"
                rank = f"rank {self._rank}, " if self._rank else ""
                _say(f"metrics on {url} ({rank}pid {os.getpid()})")
                self.url = url  # after that: a fork must not find a sentence half said
                return True
        return self._give_up(f"ports {port} to {last} of {host} are all in use")

    def answer(self) -> None:
        """Answer until it is closed; sleeps between questions, without any polling."""
        server = self._server
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._asleep, selectors.EVENT_READ)
                if server is not None:
                    selector.register(server, selectors.EVENT_READ)
                while not self._closed and server is not None:
                    selector.select()
                    if not self._closed:
                        server.handle_request()
        finally:
            self._close_sockets()

    def close(self) -> None:
        """Stop answering and free the port."""
        self._closed = True
        if self in self._writer.observers:
            self._writer.observers.remove(self)
        with contextlib.suppress(OSError):
            self._alarm.send(b"\0")

    def abandon(self) -> None:
        """Let go of the sockets in a forked child: they are the parent's."""
        self._closed = True
        self._close_sockets()

    def collect(self) -> Iterator[Family]:
        """Return the metrics as the client library wants them, at each question."""
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        self.totals.raise_to(DROPPED_ROWS, self._writer.status().dropped)
        self.totals.raise_to(HOOK_FAILURES, _hook_failures())
        for metric in METRICS:
            labels = (*LABELS, *metric.labels)
            if metric.timed:
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=labels)
                for sample in self.totals.read(metric):
                    buckets = _buckets(sample.counts)
                    histogram.add_metric((self._rank, *sample.labels), buckets, sample.value)
                yield histogram
            else:
                counter = CounterMetricFamily(metric.name, metric.help, labels=labels)
                for sample in self.totals.read(metric):
                    counter.add_metric((self._rank, *sample.labels), sample.value)
                yield counter

    def _handler(self) -> type[Any]:
        """Return the class that answers one question, from a registry of our own."""
        from prometheus_client import CollectorRegistry, MetricsHandler

        registry = CollectorRegistry()
        registry.register(self)
        handler = MetricsHandler.factory(registry)
        return type("Handler", (handler,), {"timeout": CLIENT_SECONDS})

    def _give_up(self, why: str) -> bool:
        """Say why there is no endpoint and stop counting; returns False."""
        self.close()
        self._close_sockets()
        _say(f"no metrics endpoint ({why}); recording goes on")
        return False

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.socket.close()
            self._server = None

    def _close_sockets(self) -> None:
        self._close_server()
        self._asleep.close()
        self._alarm.close()


class _Server(ThreadingHTTPServer):
    """An HTTP server that is silent, and takes no port that another process has."""

    allow_reuse_port = False  # newer Pythons set it, and two processes would share a port
    timeout = 0  # seconds: a question is there when handle_request is called

    def __init__(self, host: str, port: int, handler: type[Any]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler, bind_and_activate=False)

    def server_bind(self) -> None:
        """Bind without asking a name server for the host's name."""
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a client; out of file descriptors, wait so as not to spin."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.2)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a client that went away."""


def _buckets(counts: tuple[float, ...]) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound."""
    total, buckets = 0.0, []
    for bound, count in zip((*map(str, STEP_SECONDS), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _hook_failures() -> float:
    """Return the failures of the hooks that are on, as the control socket tells them."""
    control = sys.modules.get("graphdiag_collectors.control")
    if control is None:
        return 0.0
    collectors = control.answer({"command": "status"}).get("collectors", {})
    return float(sum(sum(told.get("failures", {}).values()) for told in collectors.values()))


def _say(sentence: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"graphdiag: {sentence}\n")
            sys.stderr.flush()
