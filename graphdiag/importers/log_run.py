"""One engine start in a log: its id, and a configuration that becomes known line by line."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from graphdiag.importers.log_time import MISSING


class Run:
    """The run that rows belong to, and what is known of its configuration so far.

    Parameters
    ----------
    engine
        Engine name, as in the run's configuration.
    number
        Which engine start of the log this is, from 1.
    t_ns
        Time of its first line in wall-clock ns, or MISSING.
    importer
        Name of the importer.
    """

    def __init__(self, engine: str, number: int, t_ns: int, importer: str) -> None:
        started = "" if t_ns == MISSING else f"{_iso(t_ns)}-"
        self.id = f"{engine}-{started}{number}"
        self._config: dict[str, Any] = {"engine": engine, "importer": importer}
        self._notes: list[str] = []
        self._damage: list[str] = []
        self._told = False
        self._events = 0
        self._last_ns = t_ns

    def get(self, key: str) -> Any:
        """Return what is known of ``key``, or None."""
        return self._config.get(key)

    def set(self, key: str, value: Any) -> None:
        """Set ``key``; None says nothing and changes nothing."""
        if value is not None and self._config.get(key) != value:
            self._config[key] = value
            self._told = False

    def note(self, sentence: str) -> None:
        """Add a sentence for the reader, once."""
        if sentence not in self._notes:
            self._notes.append(sentence)
            self._told = False

    def damaged(self, sentence: str) -> None:
        """Add a sentence on what of the log was not read whole, once."""
        if sentence not in self._damage:
            self._damage.append(sentence)
            self._told = False

    def news(self, t_ns: int) -> dict[str, Any] | None:
        """Return a run event with all that is known, or None when nothing is new since the last.

        ``t_ns`` is the time it became known. The first event bears the time of the start, and none
        goes back in time, because readers let the later one win.
        """
        if self._told:
            return None
        self._told = True
        if self._events or self._last_ns == MISSING:
            self._last_ns = max(self._last_ns, t_ns)
        self._events += 1
        config = {**self._config, "notes": self._notes}
        if self._damage:
            config["damage"] = self._damage
        return {
            "event": "run",
            "run": self.id,
            "t_ns": None if self._last_ns == MISSING else self._last_ns,
            "config": json.dumps(config),
        }


def _iso(t_ns: int) -> str:
    return datetime.fromtimestamp(t_ns // 10**9, timezone.utc).strftime("%Y%m%dT%H%M%S")
