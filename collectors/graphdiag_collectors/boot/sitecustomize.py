"""What Python imports at its start where ``graphdiag record`` put this folder on its path.

It waits for SGLang, whose versions up to 0.5.10 load no plugins, and then lets the sitecustomize
run that would have run without it. It must not fail, in any Python that a command may start.
"""

# ruff: noqa: PTH100, PTH120

import os
import sys


def _wait_for_sglang() -> None:
    try:
        if os.environ.get("GRAPHDIAG_TRACE"):
            from graphdiag_collectors import sglang_site

            sglang_site.start()
    except Exception:
        pass  # another Python, without graphdiag or too old for it


def _run_the_next() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    path = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]
    try:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec

        spec = PathFinder.find_spec("sitecustomize", path)
    except Exception:
        return
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_wait_for_sglang()
_run_the_next()
