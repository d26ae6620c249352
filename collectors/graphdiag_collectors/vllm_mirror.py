"""Wrap a function by one of the same signature, which costs a third of ``*args, **kwargs``.

vLLM calls its dispatch functions by keyword, once a step. A wrapper that takes ``**kwargs`` builds
a dictionary and spreads it again, 0.35 µs; one that names the parameters passes them on for 0.04.
The names are read off the original once, when it is patched, so that no version is assumed. The
clock is ``perf_counter``, in seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, MutableSequence, Sequence
from time import perf_counter
from typing import Any

from graphdiag_collectors import profiler
from graphdiag_collectors.guard import Guard

Function = Callable[..., Any]

_NOTING = """
def make(original, clock, note, {defaults}):
    def mirror({parameters}):
        began = clock()
        result = original({arguments})
        note(({noted} began, clock(), result, {more}))
        return result
    return mirror
"""
_KEEPING = """
def make(original, clock, {defaults}):
    def mirror({parameters}):
        began = clock()
        result = original({arguments})
        {first}._graphdiag_asked = ({noted} began, clock(), result)
        return result
    return mirror
"""
_BEGINNING = """
def make(original, clock, profiler, profiled, after, {defaults}):
    def mirror({parameters}):
        {first}._graphdiag_held = profiler.window and profiled({first}, {told})
        {first}._graphdiag_plan = {told}
        {first}._graphdiag_start = clock()
        result = original({arguments})
        {first}._graphdiag_launched = clock()
        if {ended}:
            after({first}, result, {first}._graphdiag_launched)
        return result
    return mirror
"""
_LAUNCHING = """
def make(original, clock, profiler, profiled, notes, guard, after, {defaults}):
    def mirror({parameters}):
        notes.clear()
        held = profiler.window and profiled({first}, {told})
        start = clock()
        result = original({arguments})
        if notes and guard.on:
            after({first}, result, start, clock(), held, {told})
        return result
    return mirror
"""
_ENDING = """
def make(original, clock, guard, failed, {defaults}):
    def mirror({parameters}):
        result = original({arguments})
        if guard.on:
            try:
                {first}._graphdiag.finish({first}, result, clock())
                if guard.in_a_row:
                    guard.in_a_row = 0
            except Exception as error:
                failed({first}, result, error)
        return result
    return mirror
"""
_FETCHING = """
def make(original, clock, guard, fetched, {defaults}):
    def mirror({parameters}):
        result = original({arguments})
        if guard.on:
            try:
                waiting = {first}._graphdiag_row
            except AttributeError:
                return result
            try:
                if waiting:
                    fetched(waiting, result, clock())
            except Exception as error:
                guard.failed(error)
        return result
    return mirror
"""


def noting(
    original: Function,
    names: Sequence[str],
    note: Callable[[tuple[Any, ...]], object],
    more: Sequence[str] = (),
) -> Function:
    """Return a function that calls ``original`` and notes what it was asked and answered.

    ``note`` gets a tuple: the arguments called ``names``, None for a name that ``original`` does
    not have, the clock before and after, the result, and the arguments called ``more``. It
    must not raise. Where ``original`` raises, nothing is noted.
    """
    added = ", ".join(_known(original, more))
    noted = "".join(f"{name}, " for name in _known(original, names))
    return _make(_NOTING, original, {"note": note}, noted=noted, more=added)


def keeping(original: Function, names: Sequence[str]) -> Function:
    """Return a function as :func:`noting` does that keeps the tuple on its first argument.

    There it is ``_graphdiag_asked``.
    """
    noted = "".join(f"{name}, " for name in _known(original, names))
    return _make(_KEEPING, original, {}, noted=noted)


def beginning(
    original: Function,
    name: str,
    profiled: Function,
    after: Callable[[Any, Any, float], object],
    always: bool,
) -> Function:
    """Return a function that calls ``original`` and keeps the clock around it.

    What is kept on the first argument, in four attributes, which is faster than in a tuple, is the
    argument called ``name`` as ``_graphdiag_plan``, the clock before and after as
    ``_graphdiag_start`` and ``_graphdiag_launched``, and as ``_graphdiag_held`` what ``profiled``
    returned for the first argument and that one, None where no profile window is open. ``after``
    gets the first argument, the result and the clock, but only where ``original`` had a result, or
    ``always``. Neither may raise.
    """
    given = {"profiler": profiler, "profiled": profiled, "after": after}
    told = _known(original, (name,))[0]
    ended = "True" if always else "result is not None"
    return _make(_BEGINNING, original, given, told=told, ended=ended)


def launching(
    original: Function,
    names: Sequence[str],
    profiled: Function,
    notes: MutableSequence[Any],
    guard: Guard,
    after: Function,
) -> Function:
    """Return a function that calls ``original`` and then ``after``, where something was noted.

    ``after`` gets the first argument, the result, the clock before and after, what ``profiled``
    returned for the first argument and those called ``names``, and those themselves. Neither may
    raise.
    """
    given = {"profiled": profiled, "notes": notes, "guard": guard, "after": after}
    told = ", ".join(_known(original, names))
    return _make(_LAUNCHING, original, {"profiler": profiler, **given}, told=told)


def ending(
    original: Function, guard: Guard, failed: Callable[[Any, Any, Exception], object]
) -> Function:
    """Return a function that calls ``original`` and then finishes the step on its first argument.

    ``_graphdiag.finish`` of the first argument gets that, the result and the clock. Where it
    raises, ``failed`` gets the first argument, the result and the error, and must not raise. Where
    ``original`` raises, nothing is finished.
    """
    return _make(_ENDING, original, {"guard": guard, "failed": failed})


def fetching(
    original: Function, guard: Guard, fetched: Callable[[Any, Any, float], object]
) -> Function:
    """Return a function that calls ``original`` and then ``fetched``, where something waits for it.

    ``fetched`` gets what ``_graphdiag_row`` of the first argument is, the result, and the clock.
    """
    return _make(_FETCHING, original, {"guard": guard, "fetched": fetched})


def _known(original: Function, names: Sequence[str]) -> list[str]:
    parameters = inspect.signature(original).parameters
    return [name if name in parameters else "None" for name in names]


def _make(source: str, original: Function, given: dict[str, Any], **parts: str) -> Function:
    parameters: list[str] = []
    arguments: list[str] = []
    defaults: dict[str, Any] = {}
    starred = False
    for name, parameter in inspect.signature(original).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
            parameters.append(f"*{name}")
            arguments.append(f"*{name}")
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            parameters.append(f"**{name}")
            arguments.append(f"**{name}")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parameters.append("*")
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        arguments.append(f"{name}={name}" if by_name else name)
        if parameter.default is not parameter.empty:
            defaults[f"default_{name}"] = parameter.default
            name = f"{name}=default_{name}"
        parameters.append(name)
    text = source.format(
        first=arguments[0],
        defaults=", ".join(defaults),
        parameters=", ".join(parameters),
        arguments=", ".join(arguments),
        **parts,
    )
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    made: Function = namespace["make"](original, perf_counter, **given, **defaults)
    return made
