"""The audit: what configuration and dispatch show about the artifacts, mostly without timing.

One module a group of kinds, one function a kind; each takes an :class:`Evidence` and returns the
findings it can stand behind. Severity is ``error`` when it happened in this trace and cost time,
``warn`` when the configuration makes it possible, ``info`` otherwise.
"""

from __future__ import annotations

from graphdiag.audit.artifacts import capture_order, never_warmed, stale_artifact, unused_artifacts
from graphdiag.audit.compiled import (
    capture_failed,
    compile_failed,
    cudagraph_skip,
    recompile_limit,
)
from graphdiag.audit.sizes import ceiling, stride, unreachable_size
from graphdiag.audit.trap import fallback_trap
from graphdiag.evidence import Evidence
from graphdiag.findings import AuditFinding

_CHECKS = (
    fallback_trap,
    recompile_limit,
    ceiling,
    unused_artifacts,
    never_warmed,
    stale_artifact,
    cudagraph_skip,
    compile_failed,
    capture_failed,
    stride,
    capture_order,
    unreachable_size,
)
_ORDER = ("error", "warn", "info")


def audit(evidence: Evidence) -> list[AuditFinding]:
    """Return all findings, errors first."""
    found = [finding for check in _CHECKS for finding in check(evidence)]
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))
