"""What a page waits for is computed once, and of the newest state."""

import threading
import time

from graphdiag.dashboard.stages import Desk, Stage, State


class Page:
    """Wants the state ``wanted``; ``computed`` and ``shown`` say what came of it."""

    def __init__(self, desk):
        self.wanted = State(1, "whole")
        self.computed, self.shown = [], []
        self.ready, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.stage = Stage(desk, self.shown.append, self.ready.set)

    def compute(self):
        state = self.wanted
        assert self.may_go_on.wait(10)
        self.computed.append(state)
        if state.choice == "bad":
            raise ZeroDivisionError
        return state, f"{state.choice} of {state.version}"

    def want(self, *state):
        self.wanted = State(*state)
        self.stage.want(self.wanted, self.compute)

    def take(self):
        assert self.ready.wait(10)
        self.ready.clear()
        self.stage.take()


def test_states_that_pass_while_one_is_computed_are_dropped():
    page = Page(Desk("test"))
    page.may_go_on.clear()
    for version in (1, 2, 3):
        page.want(version, "whole")
        time.sleep(0.05)
    assert not page.stage.is_of_another("part")  # nothing is shown yet
    page.may_go_on.set()
    page.take()
    page.want(3, "whole")
    page.take()
    page.want(3, "whole")
    assert [state.version for state in page.computed] == [1, 3]
    assert page.shown == ["whole of 1", "whole of 3"]
    assert page.stage.is_of_another("part")


def test_what_cannot_be_computed_is_not_tried_again_and_the_desk_goes_on():
    page = Page(Desk("test"))
    page.want(1, "bad")
    try:
        page.take()
        raise AssertionError
    except ZeroDivisionError:
        pass
    page.want(1, "bad")
    page.want(2, "whole")
    page.take()
    assert page.computed == [State(1, "bad"), State(2, "whole")]
    assert page.shown == ["whole of 2"]


def test_new_rows_wait_until_the_desk_has_rested_and_a_choice_does_not():
    desk = Desk("test", rest=1e6)
    page = Page(desk)
    page.want(1, "whole")
    page.take()
    page.want(2, "whole")
    assert not page.ready.wait(0.2)
    page.want(2, "part")
    page.take()
    assert page.shown == ["whole of 1", "part of 2"]
