from __future__ import annotations

import pytest

from graphdiag_collectors import labels
from graphdiag_collectors.labels import Labels, Words


def test_the_same_words_are_one_label_whatever_said_them() -> None:
    interned = Labels(Words(runner="target", phase="decode"))
    name = interned.add("decode/8")
    assert interned.add((None, None, None, None, None, None, None, "decode/8")) == name
    assert interned.add((None, "prefill", None, None, None, None, None, "decode/8")) != name
    assert interned.words[name] == Words(runner="target", phase="decode", artifact="decode/8")
    assert interned.codes["decode/8"] == name


def test_names_without_end_do_not_grow_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MOST_LABELS", 100)
    interned = Labels(Words(runner="target"))
    found = [interned.add(f"step {number}") for number in range(1000)]
    assert len(interned.codes) == 100
    assert len(interned.words) == 101
    assert interned.words[found[99]].artifact == "step 99"
    assert interned.words[found[100]].artifact is None
    assert set(found[100:]) == {100}
