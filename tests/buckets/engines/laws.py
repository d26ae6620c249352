"""What holds for the rules of every engine."""

import numpy as np
from hypothesis import strategies as st

from graphdiag.buckets.engines import flag
from graphdiag.buckets.engines.rules import Rules

sizes = st.lists(st.integers(1, 5000), min_size=1, max_size=30)
lists = st.lists(st.integers(-5, 2000), max_size=15)


def is_legal(rules: Rules, size: int) -> bool:
    return size > 0 and size % rules.multiple_of == 0 and (rules.most is None or size <= rules.most)


def check_legal_above(rules: Rules, wanted: list[int]) -> None:
    found = rules.legal_above(np.array(wanted, dtype=np.int64))
    assert found.dtype == np.int64
    for size, legal in zip(wanted, found.tolist(), strict=True):
        candidates = range(size, size + rules.multiple_of)
        assert legal == next((n for n in candidates if is_legal(rules, n)), 0)


def check_list(rules: Rules, buckets: list[int]) -> None:
    kept = rules.normalised(buckets)
    assert kept == sorted(set(kept))
    assert all(is_legal(rules, size) for size in kept)
    assert rules.normalised(kept) == kept
    refused = rules.refusals(buckets)
    assert all(sentence.endswith(".") for sentence in rules.complaints(buckets))
    if not refused:
        assert kept == sorted(set(buckets))
        assert all(str(size) in flag(rules, buckets) for size in kept)
    wrong = [sentence for sentence in rules.refusals(kept) if "must be in the list" not in sentence]
    assert bool(wrong) == (not kept)
