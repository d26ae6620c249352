"""What running processes answered, in lines for a terminal and as JSON.

The answers come from other processes, so every string passes through :func:`clean`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphdiag.attaching import Answer
from graphdiag.reporters.format import clean
from graphdiag.wording import count, size_in_bytes

_NOTHING_TO_HOOK = "no hooks, as it runs no model so far"


def attached_line(answer: Answer) -> str:
    """Return one line on a process that was attached to."""
    already = " already" if answer.told.get("already") else ""
    return f"{_name(answer)}: records{already}; {_hooks(answer.told)}"


def detached_line(answer: Answer) -> str:
    """Return one line on a process that was detached from."""
    left = "".join(
        f"; {clean(name)} could not be switched off ({clean(str(error))})"
        for name, error in _mapping(answer.told, "left").items()
    )
    return f"{_name(answer)}: off; {_rows(answer.told)}{left}"


def error_line(answer: Answer) -> str:
    """Return one line on a process that did not do what it was asked."""
    return f"{answer.pid}: {clean(str(answer.error))}."


def status_lines(answer: Answer) -> Iterator[str]:
    """Yield what there is to say about a process, the line with its name first."""
    told = answer.told
    python = f", Python {clean(str(told.get('python')))}" if told.get("engine") else ""
    trace = told.get("trace")
    if not trace:
        yield f"{_name(answer)}{python}: off; graphdiag attach {answer.pid} switches it on"
        return
    yield f"{_name(answer)}{python}: records into {clean(str(trace))}"
    yield f"  {_rows(told)}"
    for name, hooks in _collectors(told):
        on = _list(hooks, "on")
        state = f"{count(len(on), 'hook')} on" if on else _NOTHING_TO_HOOK
        if not hooks.get("installed"):
            state = f"not switched on ({clean(str(hooks.get('error')))})"
        yield f"  {clean(name)}: {state}"
        for word in ("off", "missing"):
            for hook, why in _mapping(hooks, word).items():
                yield f"    {word}: {clean(hook)} ({clean(str(why))})"


def as_json(answers: Sequence[Answer]) -> str:
    """Return the answers as JSON, one object a process; ``error`` says why one did not answer."""
    told = [
        {**answer.told, "pid": answer.pid, "ok": answer.error is None, "error": answer.error}
        for answer in answers
    ]
    return json.dumps({"format": 1, "processes": told}, indent=2)


def _name(answer: Answer) -> str:
    engine = answer.told.get("engine") or f"Python {answer.told.get('python')}"
    return f"{answer.pid}  {clean(str(engine))}"


def _rows(told: Mapping[str, Any]) -> str:
    rows, dropped, size = (told.get(name) for name in ("rows", "dropped", "bytes"))
    if not (isinstance(rows, int) and isinstance(dropped, int) and isinstance(size, int)):
        return "nothing recorded"
    error = told.get("last_error")
    why = f" ({clean(str(error))})" if error else ""
    return f"{count(rows, 'row')}, {count(dropped)} dropped{why}, {size_in_bytes(size)}"


def _hooks(told: Mapping[str, Any]) -> str:
    on = missing = 0
    problems = ""
    for name, hooks in _collectors(told):
        on += len(_list(hooks, "on"))
        missing += len(_mapping(hooks, "missing"))
        if hooks.get("error"):
            problems += f"; {clean(name)}: {clean(str(hooks['error']))}"
    if not on and not missing:
        return _NOTHING_TO_HOOK + problems
    return f"{count(on, 'hook')} on, {count(missing)} missing{problems}"


def _collectors(told: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    collectors = _mapping(told, "collectors")
    return [(name, _mapping(collectors, name)) for name in collectors]


def _mapping(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = told.get(name)
    return value if isinstance(value, Mapping) else {}


def _list(told: Mapping[str, Any], name: str) -> list[Any]:
    value = told.get(name)
    return value if isinstance(value, list) else []
