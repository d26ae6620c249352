"""A column of the page without a browser: what it shows, and when it says that it is old."""

import time

import pytest

pytest.importorskip("panel", reason='needs pip install "graphdiag[dashboard]"')

from contextlib import ExitStack

from graphdiag.dashboard.views import TraceView
from graphdiag.dashboard.watching import Watched
from graphdiag.timerange import TimeRange
from tests.conftest import ROOT


def until(view, holds):
    for _ in range(1500):
        view.update(dark=False)
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError


def figures(view):
    return {
        name: frame.view.objects[0].object for name, frame in view._frames.items() if frame.view
    }


# Panel's own new word for it, ``label``, is not in the oldest Panel that this runs with.
@pytest.mark.filterwarnings("ignore:Widget.name is deprecated:PendingDeprecationWarning")
def test_what_was_selected_is_shown_and_what_is_old_says_so_meanwhile():
    source = Watched(str(ROOT / "sample_traces" / "practice.parquet"), ExitStack())
    source.refresh()
    woken = []
    view = TraceView(source, lambda: woken.append(1))
    told = view._words
    until(view, lambda: len(figures(view)) == 4)
    assert "Computing" not in told["status"].object
    assert 'data-steps="8000"' in told["verdict"].object
    before = figures(view)
    first = source.sums.span[0]
    woken.clear()
    view.choice.window = TimeRange(first + 10 * 10**9, first + 30 * 10**9)
    assert woken  # nobody has to ask
    view.update(dark=False)
    assert "Computing what was selected" in told["status"].object
    parts = [*told.values(), *(frame.view for frame in view._frames.values())]
    pale = [part for part in parts if part.css_classes == ["pale"]]
    assert len(pale) == 7  # all but the status, a refusal and the picture of all time
    assert 'data-steps="8000"' in told["verdict"].object
    until(view, lambda: not any(part.css_classes for part in parts))
    assert "Computing" not in told["status"].object
    assert 'data-steps="8000"' not in told["verdict"].object
    assert {name: one is figures(view)[name] for name, one in before.items()} == dict.fromkeys(
        before, True
    )  # renewed in place


@pytest.mark.filterwarnings("ignore:Widget.name is deprecated:PendingDeprecationWarning")
def test_a_window_that_is_none_is_refused_in_words_and_an_empty_box_is_the_whole_trace():
    source = Watched(str(ROOT / "sample_traces" / "practice.parquet"), ExitStack())
    source.refresh()
    view = TraceView(source, lambda: None)
    until(view, lambda: view._found is not None)
    box, refused = view._window, view._words["refused"]

    def typed(text):
        box.value = text
        return view.choice.window, refused.object.strip()

    window, told = typed("10..20")
    assert window.end_ns - window.start_ns == 10 * 10**9
    assert not told
    for text, why in [
        ("5..4", "the window ends before it starts"),
        ("abc", "is no window; give START..END"),
        ("90000..90001", "No step began"),
        ("<b>..", "&lt;b&gt;"),
    ]:
        kept, told = typed(text)
        assert kept == window
        assert why in told
        assert "still those of before" in told
    assert typed("") == (None, "")
    typed("10..20")
    view._select(TimeRange(window.start_ns, window.end_ns + 10**9))  # a drag empties the box
    assert view.choice.window.end_ns == window.end_ns + 10**9
    assert box.value == ""
