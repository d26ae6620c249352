"""What the charges of a ledger and the terms of a comparison are called in tables and pictures."""

from __future__ import annotations

from graphdiag.findings import Charge

LEDGER_ROWS = {
    "achievable": "best achievable",
    "compile": "1 compile",
    "shapes": "2 shapes",
    "fallback": "3 fallback",
    "padding": "4 padding",
    "stalls": "stalled steps",
    "residual": "unexplained",
}
"""By attribute of :class:`graphdiag.findings.StepLedger`, in the order they add up."""


def ledger_rows(padding: Charge) -> dict[str, str]:
    """Return :data:`LEDGER_ROWS` as a ledger with such a charge for padding has them."""
    if padding.ms_per_step is not None:
        return LEDGER_ROWS
    return {**LEDGER_ROWS, "achievable": "best achievable, and padding"}


TERMS = {
    "traffic_mix": "traffic mix",
    "compile": "compile",
    "shapes": "shapes",
    "fallback": "fallback",
    "padding": "padding",
    "launch_saving": "launch saving",
    "memory": "memory",
    "stalls": "stalled steps",
    "residual": "residual",
}
"""By attribute of :class:`graphdiag.comparison.answer.Terms`, in the order they add up."""

SELDOM = ("memory", "stalls")
"""Terms that are shown only where they are not 0."""
