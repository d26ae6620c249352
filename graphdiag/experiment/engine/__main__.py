"""``python -m graphdiag.experiment.engine PLAN.json RESULT.json``: run a plan, write its result.

Exit code 0 where all requests are done, 2 with a sentence where the plan cannot be run, 130 where
somebody stopped it; the result is written then too, and says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Run the plan that the arguments name; return the exit code."""
    if len(arguments) != 2:
        print("usage: python -m graphdiag.experiment.engine PLAN.json RESULT.json", file=sys.stderr)
        return 2
    try:
        import msgspec
        import pyarrow  # noqa: F401  (the recorder's)
    except ImportError as error:
        print(
            f"error: this Python lacks what graphdiag needs ({error}): pip install "
            '"graphdiag[torch]".',
            file=sys.stderr,
        )
        return 2
    from graphdiag.errors import GraphdiagError
    from graphdiag.experiment import orphan
    from graphdiag.experiment.engine.worker import process_start, run_plan
    from graphdiag.experiment.plan import RunPlan

    orphan.end_with_parent()
    plan_file, result_file = map(Path, arguments)
    started = process_start()
    try:
        plan = msgspec.json.decode(plan_file.read_bytes(), type=RunPlan)
        result = run_plan(plan, started)
        result_file.write_bytes(msgspec.json.encode(result))
    except (OSError, msgspec.DecodeError) as error:
        print(
            f"error: {plan_file} cannot be read or {result_file} written ({error}).",
            file=sys.stderr,
        )
        return 2
    except GraphdiagError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(
            "error: stopped at once; the trace is whole, and there is no result.", file=sys.stderr
        )
        return INTERRUPTED
    return INTERRUPTED if result.interrupted else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
