"""The thread that sleeps at this process's socket, and what forks and exits mean for it."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphdiag_collectors import control_socket

TALK_SECONDS = 5.0
"""How long a peer may take for its line."""
LOOK_SECONDS = 60.0
"""How often the thread looks whether its socket's file is still there: runtime folders are emptied
when their user logs out, and the engine runs on."""
FORKED_SECONDS = 0.2
"""How long a forked child waits before it listens: most of them are gone by then, or another
program."""

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Listener:
    """Answers one question after another, in a thread of its own.

    Parameters
    ----------
    answer
        Given the question, returns the answer. What it raises is told to the peer.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._thread: threading.Thread | None = None
        self._server: socket.socket | None = None
        self._peer: socket.socket | None = None
        self._path: Path | None = None
        self._inode = 0
        self._pid = 0
        self._watched = False
        self._lock = threading.Lock()

    def start(self, wait: float = 0.0) -> None:
        """Listen, ``wait`` seconds from now; does nothing in a process that does already."""
        with self._lock:
            if self._thread is not None or not hasattr(socket, "SO_PEERCRED"):
                return
            if not self._watched:
                self._watched = True
                os.register_at_fork(after_in_child=self._forked)
                atexit.register(self.remove)
            self._thread = threading.Thread(
                target=self._work, args=(wait,), name="graphdiag-control", daemon=True
            )
            self._thread.start()

    def remove(self) -> None:
        """Remove the socket's file, if it is this process's own."""
        path = self._path
        if path is not None and self._pid == os.getpid() and self._is_there(path):
            with contextlib.suppress(OSError):
                path.unlink()

    def _forked(self) -> None:
        """Let go of what is the parent's, in a child just forked, and listen for the child."""
        for inherited in (self._server, self._peer):
            if inherited is not None:
                inherited.close()
        self._lock = threading.Lock()
        self._thread = self._server = self._peer = self._path = None
        try:
            self.start(FORKED_SECONDS)
        except RuntimeError:
            self._thread = None  # no thread to be had: this child cannot be attached to

    def _work(self, wait: float) -> None:
        time.sleep(wait)
        try:
            while True:
                self._open()
                self._serve()
        except Exception as error:
            self.remove()
            if self._server is not None:
                self._server.close()  # nobody waits for an answer that never comes
            print(f"graphdiag: this process cannot be attached to ({error})", file=sys.stderr)

    def _open(self) -> None:
        self._server, self._path = control_socket.bind()
        self._inode = self._path.lstat().st_ino
        self._pid = os.getpid()
        # Forked children of multiprocessing leave without atexit. It may be half imported just now.
        finalize = getattr(sys.modules.get("multiprocessing.util"), "Finalize", None)
        if finalize is not None:
            finalize(None, self.remove, exitpriority=0)
        control_socket.sweep(self._path.parent)

    def _serve(self) -> None:
        """Answer until the socket's file is gone."""
        server, path = self._server, self._path
        if server is None or path is None:
            return
        with server:
            server.settimeout(LOOK_SECONDS)
            while True:
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    if self._is_there(path):
                        continue
                    return
                except OSError:  # no file handle is left just now
                    time.sleep(1.0)
                    continue
                self._peer = connection
                with connection, contextlib.suppress(OSError):
                    control_socket.send(connection, self._reply(connection))
                self._peer = None

    def _reply(self, connection: socket.socket) -> Mapping[str, Any]:
        try:
            _, uid = control_socket.peer(connection)
            if uid not in (0, os.geteuid()):
                connection.settimeout(TALK_SECONDS)
                connection.recv(control_socket.MOST_BYTES)  # left unread, it would undo the answer
                return refusal("another user's process may not be spoken to")
            return self._answer(control_socket.receive(connection, TALK_SECONDS))
        except (OSError, ValueError) as error:
            return refusal(str(error))
        except Exception as error:
            return refusal(f"{type(error).__name__}: {error}")

    def _is_there(self, path: Path) -> bool:
        try:
            return path.lstat().st_ino == self._inode
        except OSError:
            return False


def refusal(why: str) -> dict[str, Any]:
    """Return the answer that says why not."""
    return {"ok": False, "error": why}
