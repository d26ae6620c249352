"""Hand-made reports with golden output: ``golden/NAME.json`` renders as ``NAME.txt`` and ``.md``.

``python tests/reporters/sample_reports.py`` writes the golden files anew after a wanted change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from graphdiag.findings import Report

GOLDEN = Path(__file__).with_name("golden")
NAMES = ("empty", "fallback", "healthy", "padding")

NASTY = (
    "\x1b[31mred\x1b[0m [red]x[/red] \r\nline2 | `tick` ``` <script>alert(1)</script> "
    "<!-- **bold** _it_ @user #12 \u202egnp\u200b ![i](http://x) \x9b2J \\| $a$ "
)
"""Breaks a terminal, rich, Markdown and HTML where it is not escaped."""


def read(name: str) -> Report:
    """Return the hand-made report of that name."""
    return msgspec.json.decode((GOLDEN / f"{name}.json").read_bytes(), type=Report)


def hostile() -> Report:
    """Return a report whose every free string is nasty and a megabyte long."""
    return msgspec.convert(_spoil(msgspec.to_builtins(read("padding"))), Report)


def _spoil(value: Any) -> Any:
    if isinstance(value, str):
        return NASTY + "A" * 1_000_000
    if isinstance(value, list):
        return [_spoil(item) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key in ("case", "severity") else _spoil(item)
            for key, item in value.items()
        }
    return value


if __name__ == "__main__":
    from graphdiag.reporters import markdown, text

    for one in NAMES:
        (GOLDEN / f"{one}.txt").write_text(text.render(read(one)), encoding="utf-8")
        (GOLDEN / f"{one}.md").write_text(markdown.render(read(one)), encoding="utf-8")
