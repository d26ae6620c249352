"""Stand-ins for packages that SGLang imports and a CPU has no use for, where they are not there."""

import importlib.abc
import importlib.machinery
import sys
import types

STUBS = ("torchvision", "sgl_kernel")


class _Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)


def _anything(name):
    def call(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else None

    return _Anything(name, (), {"__init__": lambda self, *a, **k: None, "__call__": call})


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = _anything(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STUBS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = _Module(spec.name)
        module.__path__ = []
        module.__version__ = "0.0.0"
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(_Finder())
