"""Wrap a function by one of the same signature, which costs a third of ``*args, **kwargs``.

vLLM calls its dispatch functions by keyword, once a step. A wrapper that takes ``**kwargs`` builds
a dictionary and spreads it again, 0.35 µs; one that names the parameters passes them on for 0.04.
The names are read off the original once, when it is patched, so that no version is assumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

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
        {first}.{attribute} = ({noted} began, clock(), result)
        return result
    return mirror
"""
_BEGINNING = """
def make(original, clock, after, always, {defaults}):
    def mirror({parameters}):
        start = clock()
        result = original({arguments})
        launched = clock()
        {first}.{attribute} = ({told} start, launched)
        if result is not None or always:
            after({first}, result, launched)
        return result
    return mirror
"""
_ENDING = """
def make(original, clock, after, {defaults}):
    def mirror({parameters}):
        result = original({arguments})
        after({first}, result, clock())
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
    not have, the clock in ns before and after, the result, and the arguments called ``more``. It
    must not raise. Where ``original`` raises, nothing is noted.
    """
    added = ", ".join(_known(original, more))
    noted = "".join(f"{name}, " for name in _known(original, names))
    return _make(_NOTING, original, {"note": note}, noted=noted, more=added)


def keeping(original: Function, names: Sequence[str], attribute: str) -> Function:
    """Return a function as :func:`noting` does that keeps the tuple on its first argument."""
    noted = "".join(f"{name}, " for name in _known(original, names))
    return _make(_KEEPING, original, {}, noted=noted, attribute=attribute)


def beginning(
    original: Function,
    names: Sequence[str],
    attribute: str,
    after: Callable[[Any, Any, int], object],
    always: bool,
) -> Function:
    """Return a function that calls ``original`` and keeps the clock around it.

    What is kept on the first argument, as ``attribute``, is a tuple of the arguments called
    ``names`` and the clock in ns before and after. ``after`` is called as :func:`ending` does, but
    only where ``original`` had a result, or ``always``.
    """
    told = "".join(f"{name}, " for name in _known(original, names))
    given = {"after": after, "always": always}
    return _make(_BEGINNING, original, given, told=told, attribute=attribute)


def ending(original: Function, after: Callable[[Any, Any, int], object]) -> Function:
    """Return a function that calls ``original`` and then ``after``.

    ``after`` gets the first argument, the result and the clock in ns. It must not raise. Where
    ``original`` raises, it is not called.
    """
    return _make(_ENDING, original, {"after": after})


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
    made: Function = namespace["make"](original, perf_counter_ns, **given, **defaults)
    return made
