"""What a call of the CUDA or HIP runtime or driver does, told by its name."""

from __future__ import annotations

import re

LAUNCH = 1
"""Launches GPU work: a kernel or a graph."""
GRAPH = 2
"""Launches a graph."""
BLOCKING = 4
"""Waits for the device: a synchronisation, or a copy that is not asynchronous."""
CAPTURE_BEGIN = 8
"""Begins to capture a stream into a graph."""
CAPTURE_END = 16
"""Ends a capture, or makes it executable."""
HIP = 32
"""Is HIP's."""

_PATTERNS = (
    (re.compile(r"(?:cuda|hip|cu)\w*Launch\w*Kernel|(?:cuda|hip|cu)\w*GraphLaunch"), LAUNCH),
    (re.compile(r"(?:cuda|hip|cu)\w*GraphLaunch"), GRAPH),
    (re.compile(r"(?:cuda|hip|cu)(?:Drv)?Memcpy(?!\w*Async)"), BLOCKING),
    (re.compile(r"(?:cuda|hip|cu)(?:Device|Ctx|Stream|Event)Synchronize"), BLOCKING),
    (re.compile(r"(?:cuda|hip|cu)StreamBeginCapture"), CAPTURE_BEGIN),
    (re.compile(r"(?:cuda|hip|cu)(?:StreamEndCapture|GraphInstantiate)"), CAPTURE_END),
    (re.compile(r"hip"), HIP),
)


class CallFlags(dict[str, int]):
    """The bits above by the name of a call, worked out once a name."""

    def __missing__(self, name: str) -> int:
        """Work out the bits of ``name``."""
        flags = sum(bits for pattern, bits in _PATTERNS if pattern.match(name))
        self[name] = flags
        return flags
