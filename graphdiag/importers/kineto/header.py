"""What the keys of a trace beside its events tell: rank, run, clock, device, versions."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Header:
    """The keys of a trace file that matter, None where it does not have them.

    Attributes
    ----------
    run
        Identifier of the profiling session.
    rank
        Global rank of the process.
    base_ns
        Wall-clock ns that the events' times count from; 0 where they count from 1970.
    config
        Device, driver, torch version and world size, by the keys of ``schema.RUN_CONFIG``.
    """

    run: str | None
    rank: int | None
    base_ns: int
    config: dict[str, Any]


def parse_header(keys: dict[str, Any]) -> Header:
    """Read the keys, in whatever form a re-saved trace has them."""
    distributed = _literal(keys.get("distributedInfo"))
    distributed = distributed if isinstance(distributed, dict) else {}
    run = keys.get("trace_id")
    driver = _first(keys, "cuda_driver_version", "hip_driver_version")
    torch = _first(keys, "torch_version", "pytorch_version")
    config = {
        "device": _device(_literal(keys.get("deviceProperties"))),
        "driver": None if driver is None else str(driver),
        "torch": None if torch is None else str(torch),
        "world_size": _integer(distributed.get("world_size")),
    }
    return Header(
        run=run if isinstance(run, str) and run else None,
        rank=_integer(distributed.get("rank")),
        base_ns=_integer(keys.get("baseTimeNanoseconds"), 1 << 62) or 0,
        config={key: value for key, value in config.items() if value is not None},
    )


def _device(properties: object) -> str | None:
    devices = properties if isinstance(properties, list) else []
    names = [device.get("name") for device in devices if isinstance(device, dict)]
    named = dict.fromkeys(name for name in names if isinstance(name, str) and name)
    return ", ".join(named) or None


def _literal(value: object) -> object:
    """Return the value of a string that holds JSON or the ``repr`` of a Python value."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _integer(value: object, limit: int = 1 << 31) -> int | None:
    """Return a number that may come as text, None where it is none or beyond ``limit``."""
    if isinstance(value, str) and len(value) < 20 and value.strip().isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < limit else None


def _first(keys: dict[str, Any], *names: str) -> object:
    return next((keys[name] for name in names if keys.get(name) not in (None, "")), None)
