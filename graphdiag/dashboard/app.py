"""The page and the server that gives it out, on this machine's own address alone."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import panel as pn
from panel.io.state import set_curdoc
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError

from graphdiag.dashboard import words
from graphdiag.dashboard.views import TraceView
from graphdiag.dashboard.watching import Watched, watching
from graphdiag.errors import GraphdiagError

ADDRESS = "127.0.0.1"
REFRESH_MS = 500
"""Milliseconds after which a page looks at what has rested, though nothing woke it."""
_SWITCH_S = 0.001
"""Seconds after which a thread that draws lets another go on: the numbers are to be there first."""


def serve(
    paths: Sequence[str], port: int, *, show: bool, ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve the page about ``paths``, each a trace of its own, until interrupted.

    ``port`` 0 takes a free one; ``ready`` is told the address. Only programs of this machine reach
    it, and only pages of its own address may talk to it.

    Raises
    ------
    GraphdiagError
        When a path is missing or no source, or the port is taken.
    """
    logging.getLogger("bokeh.server").setLevel(logging.ERROR)  # a closed tab is no news
    taken = _free(port)
    sys.setswitchinterval(_SWITCH_S)
    with watching(paths) as watcher:
        origins = [f"{host}:{taken}" for host in (ADDRESS, "localhost")]
        server = pn.serve(
            {"/": lambda: page(watcher.sources)},
            address=ADDRESS,
            port=taken,
            websocket_origin=origins,
            title="graphdiag dashboard",
            show=False,
            start=False,
            threaded=False,
            verbose=False,
            autoreload=False,
        )
        server.io_loop.asyncio_loop.set_exception_handler(_unless_closed)
        url = f"http://{ADDRESS}:{taken}/"
        ready(url)
        if show:
            server.io_loop.add_callback(server.show, "/")
        server.start()
        try:
            server.io_loop.start()
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is ending: one Ctrl-C is enough
            server.stop(wait=False)


def page(sources: Sequence[Watched]) -> pn.Template:
    """Return the page of a session; what it may show are ``sources`` and nothing else."""
    document, loop = pn.state.curdoc, IOLoop.current()
    waking, ended = threading.Event(), threading.Event()

    def wake() -> None:
        if not (waking.is_set() or ended.is_set()):
            waking.set()
            loop.add_callback(soon)

    def soon() -> None:
        # A session ends in the thread of this loop too, so that it is still there or known to end.
        if not ended.is_set() and document is not None:
            document.add_next_tick_callback(tick)

    def tick() -> None:
        waking.clear()
        with set_curdoc(document), pn.io.hold(document):
            for view in views:
                view.update(dark=dark)

    views = [TraceView(source, wake) for source in sources]
    template = pn.Template(words.asset("page.html"))
    columns: Any = pn.FlexBox(
        *(view.view for view in views), gap="0 1.5rem", align_items="start", css_classes=["traces"]
    )
    if len(views) > 1:
        for view in views:
            view.view.styles = {"flex": "1 1 30rem", "min-width": "min(100%, 18rem)"}
    template.add_panel("traces", columns if len(views) > 1 else views[0].view)
    dark = pn.state.session_args.get("scheme") == [b"dark"]

    def begin() -> None:
        ends = [source.listen(wake) for source in sources]

        def end(_: object) -> None:
            ended.set()
            for stop in ends:
                stop()

        pn.state.on_session_destroyed(end)
        pn.state.add_periodic_callback(tick, period=REFRESH_MS)
        wake()

    # What changes while the browser still draws the page for the first time would not reach it.
    pn.state.onload(begin)
    return template


def _unless_closed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Handle what went wrong in the loop; that a tab was closed meanwhile is no news."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)


def _free(port: int) -> int:
    """Return ``port``, or a free one for 0.

    Raises
    ------
    GraphdiagError
        When it is taken, or may not be used.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((ADDRESS, port))
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error})"
            raise GraphdiagError(f"--port {port}: {why}; give another, or 0 for any.") from error
        return int(trial.getsockname()[1])
