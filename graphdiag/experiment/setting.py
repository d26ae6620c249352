"""What an experiment is asked to do, and what each of its runs came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from graphdiag.experiment.plan import EngineSize, RunResult
from graphdiag.experiment.workloads import Workload

Ended = Literal["whole", "interrupted", "failed"]


@dataclass(frozen=True)
class Setting:
    """An experiment: ``rounds`` runs of each mode, the order turned round from one to the next.

    Attributes
    ----------
    engine
        ``bundled``, or the engine that runs as it is installed.
    model
        The model that an engine of the latter sort serves; None for the bundled one.
    python
        The program that runs the engine.
    modes, rounds
        What is run, the first mode or ``eager`` being what the others are held against.
    folder
        Where traces, plans, results and logs go.
    buckets, piecewise
        Sizes to capture, of batches that only decode and, with attention left out, of those with
        prompts; none where an installed engine chooses them itself.
    by_cpu_time
        Whether requests arrive by the CPU time that the bundled engine has used.
    left_out
        A sentence for each mode that cannot run here.
    """

    workload: Workload
    python: str
    folder: Path
    modes: tuple[str, ...]
    buckets: tuple[int, ...]
    engine: str = "bundled"
    model: str | None = None
    rounds: int = 2
    size: EngineSize = field(default_factory=EngineSize)
    device: str = "cpu"
    seed: int = 0
    faults: tuple[str, ...] = ()
    slo_itl_ms: float | None = None
    left_out: tuple[str, ...] = ()
    piecewise: tuple[int, ...] = ()
    by_cpu_time: bool = False

    @property
    def has_gpu(self) -> bool:
        """Whether the engine runs on a GPU."""
        return self.device != "cpu"

    def order(self) -> list[tuple[str, int]]:
        """Return mode and round of every run: A B C, then C B A, and so on."""
        rounds = range(1, self.rounds + 1)
        return [(mode, n) for n in rounds for mode in (self.modes if n % 2 else self.modes[::-1])]


@dataclass(frozen=True)
class Ran:
    """One run: how it ended, where its trace and log are, and what it told of itself.

    ``trace`` is None where nothing was recorded, ``result`` where the run did not get to its end.
    """

    mode: str
    round: int
    ended: Ended
    trace: Path | None
    log: Path
    result: RunResult | None = None
    sentence: str | None = None

    @property
    def is_cold(self) -> bool:
        """Whether the compile cache was empty when it started."""
        return self.round == 1
