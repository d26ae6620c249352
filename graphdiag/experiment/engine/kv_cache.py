"""The blocks of the paged KV cache: who holds which, and whether there are enough.

A sequence's tokens lie in blocks of ``block_tokens``, anywhere in the cache; its list of blocks,
the block table, keeps their order. Block 0 belongs to nobody: padding rows write there.
"""

from __future__ import annotations

NULL_BLOCK = 0


class Blocks:
    """The free blocks.

    Parameters
    ----------
    count
        Blocks in the cache, the null block not counted.
    block_tokens
        Tokens a block holds.
    """

    def __init__(self, count: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._free = list(range(count, NULL_BLOCK, -1))

    @property
    def free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._free)

    def grow(self, table: list[int], tokens: int) -> bool:
        """Give ``table`` the blocks that ``tokens`` need in all; False, and none, if too few."""
        missing = -(-tokens // self.block_tokens) - len(table)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            table.append(self._free.pop())
        return True

    def release(self, table: list[int]) -> None:
        """Take all blocks of ``table`` back."""
        self._free.extend(reversed(table))
        table.clear()

    def slot(self, table: list[int], position: int) -> int:
        """Return where in the cache the token at ``position`` lies."""
        block, offset = divmod(position, self.block_tokens)
        return table[block] * self.block_tokens + offset
