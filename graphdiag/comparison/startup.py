"""What a run's start cost: the time to its first real step, and what it was spent on."""

from __future__ import annotations

import polars as pl

from graphdiag.comparison.answer import StartUp
from graphdiag.metrics import is_real, is_replayed, is_target, most_made, slowest_rank_seconds
from graphdiag.runconfig import last_config
from graphdiag.summary import Summary


def start_up(summary: Summary) -> StartUp:
    """Measure the start of the last run in ``summary``.

    It begins with the first row on record, so that what an engine did before it was recorded is not
    in it. An imported source that shows no compilation and no capture does not tell what they
    took.
    """
    events = summary.events
    run = events["run"].drop_nulls()
    mine = pl.col("run").eq_missing(pl.lit(run[-1])) if len(run) else pl.lit(True)
    steps = summary.groups.filter(is_real() & is_target() & mine)
    first_step = steps["t_min"].min()
    own = events.filter(mine)
    made = own.filter(pl.col("event").is_in(["capture", "compile"]))
    # What ran before the first real step, dummies and warm-up, is on record as steps as well.
    other = summary.groups.filter(mine & ~(is_real() & is_target()))
    begun = pl.concat([own["t_ns"], other["t_min"]]).min()
    waited = None
    if isinstance(first_step, int) and isinstance(begun, int) and begun <= first_step:
        waited = (first_step - begun) / 1e9
    parts = _parts(made, first_step if isinstance(first_step, int) else None)
    unknown = made.is_empty() and "importer" in last_config(events)
    names = set(made["artifact"].drop_nulls())
    ran = steps.filter(is_replayed() | (pl.col("mode") == "compiled"))
    used = ran.filter(pl.col("artifact").is_in(list(names)))
    # What served was made: where nothing made it on record, the record does not tell.
    tells = bool(names) or (made.is_empty() and ran.is_empty())
    return StartUp(
        first_step_s=waited,
        compile_s=None if unknown else parts[0],
        cache_load_s=None if unknown else parts[1],
        capture_s=None if unknown else parts[2],
        rest_s=None if waited is None or unknown else max(waited - sum(parts), 0.0),
        artifacts=len(names) or most_made(made),
        served=used["artifact"].n_unique() if tells else None,
        served_steps=int(used["weight"].sum()) if tells else None,
    )


def _parts(made: pl.DataFrame, first_step: int | None) -> tuple[float, float, float]:
    """Return seconds of compiling, of loading from a cache and of capturing before ``first_step``.

    Work without a time on record came before it, as in a log that says only how long it took.
    """
    before = made
    if first_step is not None:
        before = made.filter((pl.col("t_ns") < first_step).fill_null(True))
    compiles = before.filter(pl.col("event") == "compile")
    loaded = (pl.col("cache") == "hit").fill_null(False)
    return (
        slowest_rank_seconds(compiles.filter(~loaded)),
        slowest_rank_seconds(compiles.filter(loaded)),
        slowest_rank_seconds(before.filter(pl.col("event") == "capture")),
    )
