"""Text columns of a step as one small integer: each combination of words is interned once."""

from __future__ import annotations

from typing import Any, NamedTuple

from graphdiag_collectors.schema import AXES, MODES, OUTCOMES, PHASES, REASONS, RUNNERS

MOST_LABELS = 65_536
"""Combinations kept; an engine that names artifacts without end gets null names after these."""


class Words(NamedTuple):
    """The text columns of one step, by the names of the schema."""

    runner: str | None = None
    phase: str | None = None
    axis: str | None = None
    kind: str | None = None
    mode: str | None = None
    outcome: str | None = None
    reason: str | None = None
    artifact: str | None = None

    def over(self, defaults: Words) -> Words:
        """Return these words, with those of ``defaults`` where there is none."""
        return Words(*(b if a is None else a for a, b in zip(self, defaults, strict=True)))


_LEGAL: dict[str, tuple[str, ...]] = {
    "runner": RUNNERS,
    "phase": PHASES,
    "axis": AXES,
    "mode": MODES,
    "outcome": OUTCOMES,
}


def check_words(words: Words) -> Words:
    """Return ``words`` with an unknown reason as ``unknown``.

    Raises
    ------
    TypeError
        When a word is no text.
    ValueError
        When a word is not one of the schema's.
    """
    for column, word in words._asdict().items():
        if word is None:
            continue
        if not isinstance(word, str):
            raise TypeError(f"{column} is {type(word).__name__}, not text")
        word.encode()  # a lone surrogate is a ValueError here, not in the writer's thread
        legal = _LEGAL.get(column)
        if legal is not None and word not in legal:
            raise ValueError(f"{column} {word[:40]!r} is not one of {', '.join(legal)}")
    if words.reason is not None and words.reason not in REASONS:
        return words._replace(reason="unknown")
    return words


class Labels:
    """The combinations one channel has seen.

    Attributes
    ----------
    codes
        What a step hands over, an artifact's name or a plain tuple in the order of
        :class:`Words`, to its label.
    words
        Label to words, the channel's own filled in.
    """

    def __init__(self, defaults: Words) -> None:
        self._defaults = check_words(defaults)
        self.codes: dict[Any, int] = {}
        self.words: list[Words] = []
        self._by_words: dict[Words, int] = {}

    def add(self, key: Any) -> int:
        """Return the label of ``key``, new or not.

        Raises
        ------
        TypeError, ValueError
            When a word is no text, or none of the schema's.
        """
        given = Words(*key) if isinstance(key, tuple) else Words(artifact=key)
        words = check_words(given.over(self._defaults))
        full = len(self.codes) >= MOST_LABELS
        if full:
            words = words._replace(artifact=None)
        label = self._by_words.get(words)
        if label is None:
            label = len(self.words)
            self.words.append(words)
            self._by_words[words] = label
        if not full:
            self.codes[key] = label
        return label
