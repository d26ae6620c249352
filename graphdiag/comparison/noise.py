"""How much of a mean is chance that resampling stretches of time does not show."""

from __future__ import annotations

import numpy as np

from graphdiag.steptable import EAGER, FALLBACK, REPLAY, START_UP, Floats, StepTable


def once(table: StepTable, *, by_size: bool = True) -> float:
    """Return the standard deviation, ns a step of all, that steps of start-up give the mean.

    They ran once and are in every resample as they were, but each took as much more or less than
    usual as any other step may: than others of its size or, unless ``by_size``, than all.
    """
    cold = float(table.steps[:, table.role == START_UP].sum())
    return float(np.sqrt(_variance(table, by_size) * cold)) / float(table.steps.sum())


def of_work(lengths: Floats, total: float) -> float:
    """Return the standard deviation, ns, of ``total`` ns of work between steps.

    It came in pieces such as ``lengths``, and as many of them might have come as by chance: the
    variance of a compound Poisson sum.
    """
    whole = float(lengths.sum())
    return float(np.sqrt(total * float((lengths**2).sum()) / whole)) if whole > 0 else 0.0


def _variance(table: StepTable, by_size: bool) -> float:
    """Return the variance of a step, ns squared, about the mean of its phase and size, or of all.

    The first is from the means by slice and group, of which that of n steps is off by 1 / n of the
    variance; to the second comes how far the sizes are apart.
    """
    mine = np.isin(table.role, (REPLAY, FALLBACK, EAGER)) & ~table.stalled
    size = np.where(table.role == REPLAY, table.bucket, table.requested)[mine]
    keys = np.stack([table.phase[mine], table.role[mine], size])
    place = np.unique(keys, axis=1, return_inverse=True)[1].ravel()
    steps = table.steps[:, mine]
    time = np.maximum(table.time - table.compiling, 0.0)[:, mine]
    number = np.bincount(place, steps.sum(axis=0))
    mean = np.bincount(place, time.sum(axis=0)) / np.maximum(number, 1.0)
    cells = steps > 0
    free = int(cells.sum()) - int((number > 0).sum())
    if free <= 0:
        return 0.0
    off = np.divide(time, steps, out=np.zeros_like(time), where=cells) - mean[place]
    within = float((steps * off**2).sum()) / free
    return within if by_size else within + float(np.cov(mean, fweights=number.astype(int), ddof=0))
