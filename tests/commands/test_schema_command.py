from __future__ import annotations

import json
from collections.abc import Callable

from graphdiag.reporters import schema_page

Run = Callable[..., tuple[int, str, str]]


def test_prints_the_format_in_three_forms(run: Run) -> None:
    assert run("schema") == (0, schema_page.render_text(), "")
    assert run("schema", "--markdown") == (0, schema_page.render_markdown(), "")
    code, out, _ = run("schema", "--json")
    assert code == 0
    assert json.loads(out)["format"] == 1
