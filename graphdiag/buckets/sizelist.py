"""A list of sizes as a person types it."""

from __future__ import annotations

import re

_ITEM = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)
_GAP = re.compile(r"(?:^|,)\s*(?:,|$)")
MOST_SIZES = 4096


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes in ``text``, in its order: ``1,2,4``, ``1 2 4`` or ``8-64:8``.

    Raises
    ------
    ValueError
        When an item is no size of 1 or more, or a range runs backwards; the sentence names it.
    """
    sizes: list[int] = []
    listed = text.strip("[] ")
    items = listed.replace(",", " ").split()
    if not items:
        raise ValueError("the list is empty; give sizes such as 1,2,4,8.")
    if _GAP.search(listed):
        raise ValueError(f"{text!r} has a comma with no size beside it; give sizes such as 1,2,4.")
    for item in items:
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"{item!r} is no size; give sizes such as 1,2,4 or ranges as 8-64:8.")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if first < 1:
            raise ValueError(f"{item!r}: a size is 1 or more.")
        if last < first or step < 1:
            raise ValueError(f"{item!r}: a range goes up, as 8-64:8 does.")
        found = range(first, last + 1, step)
        if len(sizes) + len(found) > MOST_SIZES:
            raise ValueError(f"more than {MOST_SIZES:,} sizes; no engine captures as many.")
        sizes += found
    return tuple(sizes)
