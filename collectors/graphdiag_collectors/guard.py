"""A guard around each hook: a hook may fail, the engine may not.

Whatever a hook raises is caught and counted; after :data:`MOST_IN_A_ROW` failures in a row the
hook switches itself off and says so in the trace. Patches go through :meth:`Hooks.patch`, which
keeps the original, patches once however often it is called, and remembers what was not there to
be patched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphdiag_collectors.marks import HOOK_OFF

if TYPE_CHECKING:
    from graphdiag_collectors.recorder import Recorder

MOST_IN_A_ROW = 3
_MARK = "__graphdiag_original__"

Function = Callable[..., Any]


class Guard:
    """One hook's health.

    Attributes
    ----------
    name
        What the trace calls the hook, such as ``vllm.dispatch``.
    rows
        Whether each failure costs a row, which then counts as dropped.
    on
        False once it has switched itself off, or was switched off.
    failures, in_a_row
        How often it raised, ever and without a success between.
    last
        The last failure in words.
    """

    __slots__ = ("_report", "failures", "in_a_row", "last", "name", "on", "rows")

    def __init__(self, name: str, report: Callable[[Guard], None], rows: bool = False) -> None:
        self.name = name
        self.rows = rows
        self.on = True
        self.failures = 0
        self.in_a_row = 0
        self.last = ""
        self._report = report

    def failed(self, error: BaseException) -> None:
        """Count a failure; the third in a row switches the hook off. Never raises."""
        self.failures += 1
        self.in_a_row += 1
        try:
            self.last = f"{type(error).__name__}: {error}"[:300]
        except Exception:
            self.last = type(error).__name__
        ends = self.in_a_row >= MOST_IN_A_ROW and self.on
        if ends:
            self.on = False
        if ends or self.rows:
            try:
                self._report(self)
            except Exception:
                self.last += " (and the trace could not be told)"

    def run(self, hook: Function, *arguments: Any) -> Any:
        """Call ``hook`` where the guard is on and return what it returns, None where it failed."""
        if not self.on:
            return None
        try:
            result = hook(*arguments)
        except Exception as error:
            self.failed(error)
            return None
        self.in_a_row = 0
        return result


class Hooks:
    """The hooks of one collector in this process.

    Attributes
    ----------
    guards
        By name, in the order they were asked for.
    missing
        What could not be hooked, and why, in words.
    """

    def __init__(self, recorder: Callable[[], Recorder | None]) -> None:
        self._recorder = recorder
        self._patched: list[tuple[Any, str, Any]] = []
        self._lock = threading.Lock()
        self.guards: dict[str, Guard] = {}
        self.missing: dict[str, str] = {}

    def guard(self, name: str, rows: bool = False) -> Guard:
        """Return the guard called ``name``, made on first use."""
        return self.guards.setdefault(name, Guard(name, self._told, rows))

    def patch(self, owner: Any, attribute: str, wrap: Callable[[Function], Function]) -> bool:
        """Replace ``owner.attribute`` by ``wrap(original)``; True if it is patched now.

        ``owner`` is a class or a module whose own namespace holds the attribute. Patching twice is
        patching once. What is not there is remembered in :attr:`missing`.
        """
        label = f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', owner)}"
        label = f"{label.lstrip('.')}.{attribute}"
        with self._lock:
            try:
                original = vars(owner).get(attribute)
                if original is None:
                    self.missing[label] = "not there in this version"
                    return False
                if hasattr(original, _MARK):
                    return True
                plain = original.__func__ if isinstance(original, staticmethod) else original
                wrapper = wrap(plain)
                wrapper.__name__ = getattr(plain, "__name__", attribute)
                wrapper.__qualname__ = getattr(plain, "__qualname__", attribute)
                wrapper.__doc__ = getattr(plain, "__doc__", None)
                wrapper.__wrapped__ = plain  # type: ignore[attr-defined]
                setattr(wrapper, _MARK, original)
                replaced = staticmethod(wrapper) if isinstance(original, staticmethod) else wrapper
                setattr(owner, attribute, replaced)
            except Exception as error:
                self.missing[label] = f"{type(error).__name__}: {error}"
                return False
            self._patched.append((owner, attribute, original))
            return True

    def unpatch(self) -> None:
        """Put every original back."""
        with self._lock:
            while self._patched:
                owner, attribute, original = self._patched.pop()
                setattr(owner, attribute, original)

    def describe(self) -> dict[str, Any]:
        """Return what is hooked, what switched itself off, what is missing: for the run event."""
        return {
            "on": [guard.name for guard in self.guards.values() if guard.on],
            "off": {g.name: g.last for g in self.guards.values() if not g.on},
            "failures": {g.name: g.failures for g in self.guards.values() if g.failures},
            "missing": dict(self.missing),
        }

    def _told(self, guard: Guard) -> None:
        recorder = self._recorder()
        if recorder is None:
            return
        if guard.rows:
            recorder.refuse(f"{guard.name} raised {guard.last}")
        if not guard.on:
            details = {"hook": guard.name, "failures": guard.failures, "last": guard.last}
            recorder.mark(HOOK_OFF, details)
