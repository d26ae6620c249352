"""Open a profile window in running processes, and wait for it.

The other side is :mod:`graphdiag_collectors.profiler`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from graphdiag.attaching import Answer, ask, find

POLL_SECONDS = 0.1
IDLE_SECONDS = 2.0
"""How long a process that runs no step is waited for once another has been profiled."""
_COMMAND = "profile"
_OVER = ("done", "failed")


def profile(
    pid: int, steps: int, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> list[Answer]:
    """Profile the next ``steps`` steps of ``pid`` and of the processes it started.

    Returns
    -------
    list[Answer]
        One a process, when each is done, has refused, or ``seconds`` have passed.

    Raises
    ------
    GraphdiagError
        When none can be spoken to.
    """
    question = {"command": _COMMAND, "steps": steps, "seconds": seconds}
    answers = {one: ask(one, question) for one in find(pid)}
    deadline = time.monotonic() + seconds + IDLE_SECONDS
    patience = deadline
    while waiting := [one for one, answer in answers.items() if _is_open(answer)]:
        now = time.monotonic()
        if patience == deadline and any(_is_done(answer) for answer in answers.values()):
            patience = min(deadline, now + IDLE_SECONDS)
        for one in waiting:
            idle = answers[one].told.get("state") == "waiting"
            cancel = now > (patience if idle else deadline)
            told = {"window": answers[one].told.get("window"), "cancel": cancel}
            answers[one] = _settled(ask(one, {"command": _COMMAND, **told}))
            if cancel and _is_open(answers[one]):
                answers[one] = Answer(one, answers[one].told, "did not end its window")
        sleep(POLL_SECONDS)
    return list(answers.values())


def _settled(answer: Answer) -> Answer:
    """Turn a window that failed into an error."""
    if answer.error is None and answer.told.get("state") == "failed":
        return Answer(answer.pid, answer.told, str(answer.told.get("why")))
    return answer


def _is_open(answer: Answer) -> bool:
    return answer.error is None and answer.told.get("state") not in _OVER


def _is_done(answer: Answer) -> bool:
    return answer.error is None and answer.told.get("state") == "done"
