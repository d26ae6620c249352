"""The model: a small decoder over a paged cache, in regions that an artifact may be made of.

A region reads static input buffers and writes into static output buffers, and what it does depends
on no value, only on shapes. :func:`decode` is the whole model for rows of one token each, which one
full graph can hold. :func:`enter`, :func:`between` and :func:`leave` are what lies before, between
and after the attention layers, for any batch; :func:`ragged_attention` is the boundary between
them: it goes from sequence to sequence on the host, so no graph can hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from graphdiag.experiment.plan import EngineSize

Tensor = Any
Cache = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, each (blocks, tokens a block, heads, head size)."""


class Block(nn.Module):  # type: ignore[misc]
    """What a layer does before its attention and after it."""

    def __init__(self, size: EngineSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.norms = nn.ModuleList(nn.LayerNorm(size.hidden) for _ in range(2))
        self.qkv = nn.Linear(size.hidden, 3 * size.hidden)
        self.out = nn.Linear(size.hidden, size.hidden)
        self.up = nn.Linear(size.hidden, 4 * size.hidden)
        self.down = nn.Linear(4 * size.hidden, size.hidden)

    def before(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of x, each (rows, heads, head size)."""
        q, k, v = self.qkv(self.norms[0](x)).view(len(x), 3, self.heads, -1).unbind(1)
        return q, k, v

    def after(self, x: Tensor, read: Tensor) -> Tensor:
        """Return x with what attention read, and the MLP's part, added."""
        x = x + self.out(read.reshape(len(x), -1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):  # type: ignore[misc]
    """Embeddings, blocks, the last norm; the words' embedding is also the output matrix."""

    def __init__(self, size: EngineSize) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.hidden)
        self.places = nn.Embedding(size.max_context, size.hidden)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden)

    def sample(self, hidden: Tensor) -> Tensor:
        """Return the likeliest token of each row; outside of every graph."""
        return (hidden @ self.words.weight.T).argmax(-1)


def build(size: EngineSize, seed: int, device: str) -> Decoder:
    """Return a decoder whose weights follow from the seed, the same on every device."""
    torch.manual_seed(seed)
    model: Decoder = Decoder(size).to(device)
    model.eval()
    return model


def decode(
    model: Decoder,
    cache: Cache,
    tokens: Tensor,
    positions: Tensor,
    slots: Tensor,
    tables: Tensor,
    hidden: Tensor,
) -> None:
    """Run the whole model on rows of one token each; ``hidden`` is written.

    Tokens, positions and slots are (rows,), block tables (rows, most blocks a sequence).
    """
    x = model.words(tokens) + model.places(positions)
    for block, (keys, values) in zip(model.blocks, cache, strict=True):
        q, k, v = block.before(x)
        write(keys, values, slots, k, v)
        x = block.after(x, decode_attention(q, keys, values, tables, positions))
    hidden.copy_(model.norm(x))


def enter(
    model: Decoder, tokens: Tensor, positions: Tensor, x: Tensor, qkv: tuple[Tensor, ...]
) -> None:
    """Run what lies before the first attention; ``x`` and ``qkv`` are written."""
    x.copy_(model.words(tokens) + model.places(positions))
    _hand_over(model.blocks[0].before(x), qkv)


def between(
    block: Block, following: Block, x: Tensor, read: Tensor, qkv: tuple[Tensor, ...]
) -> None:
    """Run what lies between the attention of two layers; ``x`` and ``qkv`` are written."""
    x.copy_(block.after(x, read))
    _hand_over(following.before(x), qkv)


def leave(model: Decoder, block: Block, x: Tensor, read: Tensor, hidden: Tensor) -> None:
    """Run what lies after the last attention; ``hidden`` is written."""
    hidden.copy_(model.norm(block.after(x, read)))


def write(keys: Tensor, values: Tensor, slots: Tensor, k: Tensor, v: Tensor) -> None:
    """Put keys and values into the cache; slot s is token s % block_tokens of its block."""
    block_tokens = keys.shape[1]
    where = slots // block_tokens, slots % block_tokens
    keys[where], values[where] = k, v


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, tables: Tensor, positions: Tensor
) -> Tensor:
    """Return what each row reads of its own sequence, (rows, heads, head size).

    It looks through the whole width of the tables and masks what lies behind each position, so that
    its shape does not depend on how long the sequences are.
    """
    k, v = keys[tables].flatten(1, 2), values[tables].flatten(1, 2)
    seen = torch.arange(k.shape[1], device=q.device) <= positions[:, None]
    read = F.scaled_dot_product_attention(
        q[:, :, None], k.transpose(1, 2), v.transpose(1, 2), attn_mask=seen[:, None, None]
    )
    return read[:, :, 0]


def chunk_attention(
    q: Tensor, keys: Tensor, values: Tensor, table: Tensor, start: int, count: int
) -> Tensor:
    """Return what a chunk of a prompt reads of its sequence, (count, heads, head size).

    ``start`` is the position of its first token. Only the blocks up to its last are looked through.
    """
    blocks = table[: -(-(start + count) // keys.shape[1])]
    k, v = keys[blocks].flatten(0, 1), values[blocks].flatten(0, 1)
    places = torch.arange(len(k), device=q.device)
    seen = places <= places[start : start + count, None]
    read = F.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), attn_mask=seen
    )
    return read.transpose(0, 1)


def ragged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    positions: Tensor,
    spans: Sequence[tuple[int, int]],
    read: Tensor,
) -> None:
    """Let the tokens of several sequences read each of its own; ``read`` is written.

    ``spans`` are start and count of each sequence. Those of one token come first and read together.
    """
    singles = sum(count == 1 for _, count in spans)
    if singles:
        read[:singles] = decode_attention(
            q[:singles], keys, values, tables[:singles], positions[:singles]
        )
    at = singles
    for row, (start, count) in enumerate(spans[singles:], start=singles):
        mine = slice(at, at + count)
        read[mine] = chunk_attention(q[mine], keys, values, tables[row], start, count)
        at += count


def _hand_over(made: tuple[Tensor, ...], buffers: tuple[Tensor, ...]) -> None:
    for tensor, buffer in zip(made, buffers, strict=True):
        buffer.copy_(tensor)
