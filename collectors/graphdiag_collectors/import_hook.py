"""Run a function when a module has been imported, without importing it ourselves.

Registering costs microseconds and imports nothing, so a plugin that every process of an engine
loads stays free in those that never run a model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Callback = Callable[[ModuleType], None]


class _Finder(MetaPathFinder):
    """Lets the other finders find a watched module, and runs the callbacks once it is executed."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._inside: set[str] = set()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the real spec with its loader wrapped, for a module that somebody waits for."""
        if fullname not in self.waiting or fullname in self._inside:
            return None
        self._inside.add(fullname)
        try:
            spec = None
            for finder in sys.meta_path:
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    break
        finally:
            self._inside.discard(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def imported(self, module: ModuleType) -> None:
        """Run what waits for ``module``; a callback that raises does not stop the import."""
        for callback in self.waiting.pop(module.__name__, []):
            _call(callback, module)


class _Loader(Loader):
    """The real loader, and the callbacks after it."""

    def __init__(self, loader: Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as the real loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, give it its own loader back, and run the callbacks."""
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.imported(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


_FINDER = _Finder()


def when_imported(module: str, callback: Callback) -> None:
    """Call ``callback`` with ``module`` once it is imported: now if it is, else right after.

    What ``callback`` raises is swallowed: an import of the engine's never fails because of us.
    """
    present = sys.modules.get(module)
    if present is not None and not _being_imported(present):
        _call(callback, present)
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting.setdefault(module, []).append(callback)


def _being_imported(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        print(f"graphdiag: could not hook {module.__name__} ({error})", file=sys.stderr)
