"""Errors that a person caused and can mend; each carries the exit code of the command."""

from __future__ import annotations


class GraphdiagError(Exception):
    """A sentence for the person at the terminal: the file, the place, the way out."""

    exit_code = 2


class SourceError(GraphdiagError):
    """The input is no trace and no source that an importer knows, or it is damaged."""


class NoRowsYet(SourceError):
    """A recording has begun, or its folder waits for it: another look may find rows."""


class NotJudged(GraphdiagError):
    """A limit given to ``graphdiag check`` cannot be said to hold, nor to be broken."""


class CheckFailed(GraphdiagError):
    """A limit given to ``graphdiag check`` does not hold."""

    exit_code = 1
