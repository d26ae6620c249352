"""Single events (captures, compiles, runs, marks): checked by the caller's thread, kept as rows."""

from __future__ import annotations

import json
import math
import operator
import time
from collections.abc import Mapping
from typing import Any

from graphdiag_collectors.schema import COLUMNS, EVENTS

_COLUMNS = {column.name: column for column in COLUMNS}
_BITS = {"int32": 31, "int64": 63}
_JSON = ("key", "identity", "config")


def clean_event(event: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row: mappings as JSON, numbers within their type, ``t_ns`` now if not given.

    Raises
    ------
    TypeError, ValueError
        When a column is none of the event's, or its value is not of its type.
    """
    if event not in EVENTS:
        raise ValueError(f"event {event!r} is not one of {', '.join(EVENTS)}")
    row: dict[str, Any] = {"event": event, "t_ns": time.time_ns(), "weight": 1}
    for name, value in columns.items():
        if value is None:
            continue
        column = _COLUMNS.get(name)
        if column is None or event not in column.events or name in ("event", "run", "rank", "pid"):
            raise ValueError(f"{name} is no column of a {event} event")
        kind = str(column.type)
        if kind in _BITS:
            number = operator.index(value)
            if not -(1 << _BITS[kind]) <= number < 1 << _BITS[kind]:
                raise ValueError(f"{name} {number:.3g} does not fit its type {kind}")
            row[name] = number
        elif name in _JSON and not isinstance(value, str):
            row[name] = as_json(value)
        elif not isinstance(value, str):
            raise TypeError(f"{name} is {type(value).__name__}, not text")
        elif column.words and value not in column.words:
            raise ValueError(f"{name} {value[:40]!r} is not one of {', '.join(column.words)}")
        else:
            value.encode()  # a lone surrogate is a ValueError here, not in the writer's thread
            row[name] = value
    return row


def as_json(value: Any) -> str:
    """Return ``value`` as JSON with sorted keys, so that equal identities are equal texts.

    What JSON does not know (enums, dtypes, paths) is written as its ``str``, a set as a list.
    """
    return json.dumps(_plain(value), sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in value), key=str)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
