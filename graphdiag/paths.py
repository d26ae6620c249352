"""How a path is shown, and what to say of one that cannot be read or written."""

from __future__ import annotations

import errno
import re

_SURROGATES = re.compile("[\ud800-\udfff]")
"""What Python puts in a file name for a byte that is not UTF-8; no output can encode it."""

_UNREADABLE = {
    errno.EACCES: "you may not read it; check its permissions",
    errno.EPERM: "you may not read it; check its permissions",
    errno.ENOENT: "no such file; check the path",
    errno.EISDIR: "a folder, where a file is read; name the files in it",
}
_UNWRITABLE = {
    errno.EACCES: "you may not write there; name a file in another folder",
    errno.EPERM: "you may not write there; name a file in another folder",
    errno.EROFS: "you may not write there; name a file in another folder",
    errno.ENOENT: "its folder does not exist; make it first",
    errno.ENOTDIR: "its folder is a file; name a file in another folder",
    errno.EISDIR: "is a folder; name the file to write in it",
    errno.ENOSPC: "the disk is full; make room, or name a file on another one",
    errno.EDQUOT: "your disk quota is used up; make room, or name a file on another disk",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}


def printable(path: str) -> str:
    """Return a path whose undecodable bytes are replaced, so that it can be printed as UTF-8."""
    return _SURROGATES.sub("\ufffd", path)


def unreadable(name: str, error: OSError) -> str:
    """Return the sentence for a file that cannot be read."""
    why = _UNREADABLE.get(error.errno or 0)
    return f"{name}: {why or f'cannot be read ({error.strerror or error}); copy it again'}."


def unwritable(name: str, error: OSError) -> str:
    """Return the sentence for a file that cannot be written."""
    why = _UNWRITABLE.get(error.errno or 0)
    return f"{name}: {why or f'cannot be written ({error.strerror or error}); name another file'}."
