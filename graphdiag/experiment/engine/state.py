"""What stays at its address for the life of the engine: weights, cache, input and output buffers.

A graph bakes addresses in, so every step's input is copied to the same place. On the host the
inputs are NumPy arrays; on a CPU those are the device's buffers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from graphdiag.experiment.engine import model as regions
from graphdiag.experiment.engine.dispatcher import FULL
from graphdiag.experiment.engine.kv_cache import NULL_BLOCK, Blocks
from graphdiag.experiment.engine.scheduler import Batch
from graphdiag.experiment.plan import EngineSize

_INPUTS = ("tokens", "positions", "slots", "tables")


class Region(NamedTuple):
    """A part of the model that one artifact can be made of.

    Attributes
    ----------
    function
        One of :mod:`~graphdiag.experiment.engine.model`.
    arguments
        Returns its arguments for a number of rows, given the buffer that the result goes to.
    """

    function: Callable[..., None]
    arguments: Callable[[int, Any], tuple[Any, ...]]


class State:
    """The engine's tensors.

    Parameters
    ----------
    size
        The engine's.
    rows
        Most rows of a step, padding included.
    blocks, width
        Blocks of the cache, without the null block, and most blocks of a sequence.
    device, seed
        Where it lies, and what the weights follow from.

    Attributes
    ----------
    model
        The decoder; replaced where weights are loaded anew.
    cache
        Keys and values.
    tokens, positions, slots, tables
        Inputs of a step; the tables have a row a sequence, the others one a token.
    spans, filled
        Start and count of each sequence in the buffers, and how many rows they fill.
    x, qkv, read, hidden
        What regions hand to each other, a row a token; ``hidden`` is what a step comes to.
    """

    def __init__(
        self, size: EngineSize, rows: int, blocks: int, width: int, device: str, seed: int
    ) -> None:
        self.size, self.rows, self.device = size, rows, device
        self.model = regions.build(size, seed, device)
        heads = (size.heads, size.hidden // size.heads)
        shape = (blocks + 1, size.block_tokens, *heads)
        self.cache: regions.Cache = [
            (torch.zeros(shape, device=device), torch.zeros(shape, device=device))
            for _ in range(size.layers)
        ]
        self._hosts = {name: _host((rows,), device) for name in _INPUTS[:3]}
        self._hosts["tables"] = _host((rows, width), device)
        self._arrays: dict[str, Any] = {name: it.numpy() for name, it in self._hosts.items()}
        same = device == "cpu"
        self.tokens, self.positions, self.slots, self.tables = (
            self._hosts[name] if same else torch.zeros_like(self._hosts[name], device=device)
            for name in _INPUTS
        )
        self.x = torch.zeros(rows, size.hidden, device=device)
        self.qkv = tuple(torch.zeros(rows, *heads, device=device) for _ in range(3))
        self.read = torch.zeros(rows, *heads, device=device)
        self.hidden = torch.zeros(rows, size.hidden, device=device)
        self.spans: list[tuple[int, int]] = []
        self.filled = 0

    def fill(self, batch: Batch, rows: int, blocks: Blocks) -> None:
        """Put a step's input into the buffers; rows up to ``rows`` are padding."""
        arrays, at = self._arrays, 0
        self.spans = []
        for number, (sequence, start, count) in enumerate(batch.rows):
            end = start + count
            self.spans.append((start, count))
            arrays["tables"][number, : len(sequence.table)] = sequence.table
            if count == 1:
                arrays["tokens"][at] = sequence.tokens[start]
                arrays["positions"][at] = start
                arrays["slots"][at] = blocks.slot(sequence.table, start)
            else:
                places = np.arange(start, end)
                table = np.array(sequence.table)
                inside = places % blocks.block_tokens
                arrays["tokens"][at : at + count] = sequence.tokens[start:end]
                arrays["positions"][at : at + count] = places
                arrays["slots"][at : at + count] = (
                    table[places // blocks.block_tokens] * blocks.block_tokens + inside
                )
            at += count
        self.filled = at
        self._pad(at, rows)

    def blank(self, rows: int) -> None:
        """Make all rows padding, for a warm-up: it leaves every sequence's cache alone."""
        self.spans, self.filled = [(0, 1)] * rows, rows
        self._pad(0, rows)

    def _pad(self, first: int, rows: int) -> None:
        for name in ("tokens", "positions", "slots"):
            self._arrays[name][first:rows] = NULL_BLOCK
        if self.device != "cpu":
            for name, host in self._hosts.items():
                getattr(self, name)[:rows].copy_(host[:rows], non_blocking=True)

    def wait(self) -> None:
        """Wait for the device: its copies read the host's arrays, which the next step fills."""
        if self.device != "cpu":
            torch.cuda.current_stream().synchronize()

    def regions(self, mode: str) -> list[Region]:
        """Return what a step of ``mode`` consists of; between any two lies a layer's attention."""
        if mode == FULL:
            return [Region(regions.decode, self._whole)]
        layers = range(1, self.size.layers)
        return [
            Region(regions.enter, self._first),
            *(Region(regions.between, partial(self._middle, layer)) for layer in layers),
            Region(regions.leave, self._last),
        ]

    def attend(self, layer: int, rows: int) -> None:
        """Write the layer's keys and values of the real rows, and let them read."""
        q, k, v = self.qkv
        keys, values = self.cache[layer]
        regions.write(keys, values, self.slots[:rows], k[:rows], v[:rows])
        regions.ragged_attention(
            q, keys, values, self.tables, self.positions, self.spans, self.read
        )

    def _whole(self, rows: int, result: Any) -> tuple[Any, ...]:
        inputs = (self.tokens[:rows], self.positions[:rows], self.slots[:rows], self.tables[:rows])
        return (self.model, self.cache, *inputs, result[:rows])

    def _first(self, rows: int, result: Any) -> tuple[Any, ...]:
        inputs = self.tokens[:rows], self.positions[:rows]
        return (self.model, *inputs, self.x[:rows], self._qkv(rows))

    def _middle(self, layer: int, rows: int, result: Any) -> tuple[Any, ...]:
        blocks = self.model.blocks
        return (
            *(blocks[layer - 1], blocks[layer]),
            *(self.x[:rows], self.read[:rows], self._qkv(rows)),
        )

    def _last(self, rows: int, result: Any) -> tuple[Any, ...]:
        block = self.model.blocks[self.size.layers - 1]
        return (self.model, block, self.x[:rows], self.read[:rows], result[:rows])

    def _qkv(self, rows: int) -> tuple[Any, ...]:
        return tuple(buffer[:rows] for buffer in self.qkv)


def _host(shape: tuple[int, ...], device: str) -> Any:
    return torch.zeros(shape, dtype=torch.long, pin_memory=device != "cpu")
