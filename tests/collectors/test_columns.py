from __future__ import annotations

import time

import pytest

from graphdiag_collectors import columns
from graphdiag_collectors.columns import Clock


def test_the_clock_moves_only_when_somebody_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    first = clock.distance_ns()
    assert clock.distance_ns() == first
    assert abs(first + time.perf_counter_ns() - time.time_ns()) < 50_000_000
    real = time.time_ns
    monkeypatch.setattr(columns.time, "time_ns", lambda: real() + 3_600_000_000_000)
    assert abs(clock.distance_ns() - first - 3_600_000_000_000) < 1_000_000
