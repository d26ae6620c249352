"""The live page in a real browser: one server over a recording that grows and two traces."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator
from playwright.sync_api import Page as Tab

from graphdiag.plots import palette
from graphdiag_collectors import Recorder
from tests.browser.conftest import DESKTOP, PHONE, Shown, count, pixels
from tests.build import event, step, write
from tests.conftest import ROOT

pytest.importorskip("panel", reason='needs pip install "graphdiag[dashboard]"')

PRACTICE = ROOT / "sample_traces" / "practice.parquet"
HOSTILE = "</script><img src=x onerror=\"document.title='hit'\">$$x$$"
MS = 1_000_000


@dataclass(frozen=True)
class Served:
    """A dashboard that runs: its address, the recording that it watches, its process."""

    url: str
    recorder: Recorder
    server: subprocess.Popen[str]


def recorded(recorder: Recorder, size: int, times: int) -> None:
    for _ in range(times):
        with recorder.step(requested=size) as one:
            one.replayed(bucket=16, artifact="decode/16")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server over a growing recording, the practice trace and a hostile one."""
    hostile = write(
        [
            event("run", config={"engine": HOSTILE, "notes": [HOSTILE, "x" * (1 << 20)]}),
            *(
                step(9, 16, 5.0 * i, dur_ns=MS, artifact=HOSTILE, phase=HOSTILE, reason=HOSTILE)
                for i in range(40)
            ),
            step(99, None, 300.0, dur_ns=MS, reason=HOSTILE, outcome="fallback"),
        ],
        tmp_path / "hostile.parquet",
    )
    config = {"engine": "mine", "capture_sizes": [8, 16]}
    recorder = Recorder(str(tmp_path / "live.parquet"), config, phase="decode")
    recorded(recorder, 9, 50)
    time.sleep(1.2)  # its first rows are on disk
    command = [sys.executable, "-m", "graphdiag", "dashboard", "--port", "0"]
    server = subprocess.Popen(
        [*command, str(tmp_path / "live.parquet"), str(PRACTICE), str(hostile)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    told = server.stderr.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+/", told)
    assert url, told + server.stderr.read()
    yield Served(url[0], recorder, server)
    recorder.close()
    server.send_signal(2)
    assert server.wait(timeout=20) == 0
    with server.stderr:
        assert "Traceback" not in server.stderr.read()


@dataclass
class Dashboard:
    """A tab on the page; ``trace(number)`` is one of its columns."""

    shown: Shown

    @property
    def tab(self) -> Tab:
        return self.shown.tab

    def trace(self, number: int) -> Locator:
        return self.tab.locator(".trace").nth(number)

    def tile(self, number: int, name: str) -> str:
        return self.trace(number).locator(f"[data-tile={name}] b").inner_text()

    def found(self, number: int) -> str:
        """Return how many steps the findings on the page are of."""
        return self.trace(number).locator(".verdict").get_attribute("data-steps") or ""

    def until(self, holds: Callable[[], bool], seconds: float) -> float:
        """Wait until something holds; return how long it took."""
        start = time.monotonic()
        while not holds():
            assert time.monotonic() - start < seconds
            self.tab.wait_for_timeout(50)
        return time.monotonic() - start


@pytest.fixture
def open_page(browser: Browser, served: Served) -> Iterator[Callable[..., Dashboard]]:
    contexts = []

    def opened(**context: object) -> Dashboard:
        contexts.append(browser.new_context(**{**DESKTOP, **context}))
        shown = Shown(contexts[-1].new_page())
        shown.tab.goto(served.url)
        for number in range(3):
            shown.tab.locator(".trace").nth(number).locator(".verdict").wait_for(timeout=30_000)
        shown.tab.wait_for_timeout(500)
        return Dashboard(shown)

    yield opened
    for context in contexts:
        context.close()


def reported(window: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "graphdiag", "report", str(PRACTICE), "--json", "--window", window],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def check_that_it_loads_from_the_loopback_alone_and_draws(page: Dashboard) -> None:
    for name, color in (
        ("times", palette.REPLAY),
        ("sizes", palette.PADDING),
        ("outcomes", palette.PADDING),
        ("ledger", palette.ACHIEVABLE),
    ):
        plot = page.trace(1).locator(f".plot.{name}")
        assert count(pixels(plot), color) > 50, name
    page.shown.keep("dashboard-desktop")
    assert page.shown.complaints == []
    own = ("http://127.0.0.1:", "blob:http://127.0.0.1:")
    assert [url for url in page.shown.requests if not url.startswith(own)] == []


def check_that_strings_of_a_trace_are_shown_and_not_run(page: Dashboard) -> None:
    assert page.tab.title() == "graphdiag dashboard"
    said = "".join(page.trace(2).locator("p, li, h1").all_inner_texts())
    assert HOSTILE in said
    assert page.tab.locator("img[src=x]").count() == 0
    assert len(said) < 100_000
    assert page.shown.complaints == []


def check_that_a_selected_range_gives_what_report_gives(page: Dashboard) -> None:
    plot = page.trace(1).locator(".plot.times")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    y = box["y"] + 0.6 * box["height"]
    page.tab.mouse.move(box["x"] + 0.5 * box["width"], y)
    page.tab.mouse.down()
    page.tab.mouse.move(box["x"] + 0.8 * box["width"], y, steps=5)
    page.tab.mouse.up()
    page.until(lambda: page.found(1) not in ("8000", ""), 15)
    flag = page.trace(1).locator("code", has_text="--window").inner_text()
    report = reported(flag.removeprefix("--window "))
    metrics, cases = report["metrics"], {case["case"]: case for case in report["cases"]}
    assert 1000 < metrics["steps"] < 4000
    assert page.tile(1, "steps") == f"{metrics['steps']:,}"
    assert page.tile(1, "padding") == f"{metrics['padding_ratio']:.1%}".replace("%", " %")
    assert page.tile(1, "mean") == f"{metrics['step_ms_mean']:.3g} ms"
    assert page.tile(1, "exact") == f"{metrics['exact_hit_rate']:.1%}".replace("%", " %")
    told = page.trace(1).locator(".card", has_text="4 padding").inner_text()
    low, high = cases["padding"]["ci95"]
    assert f"{cases['padding']['ms_per_step']:.3g} ms" in told
    assert f"{low:.3g} to {high:.3g}" in told
    assert page.tile(0, "steps") != page.tile(1, "steps")
    page.trace(1).get_by_role("button", name="Whole trace").click()
    page.until(lambda: page.found(1) == "8000", 15)
    typed = page.trace(1).get_by_label("Window", exact=False)
    typed.fill("90..")
    typed.press("Enter")
    page.trace(1).get_by_text("no step began from").wait_for(timeout=10_000)
    assert page.trace(1).get_by_text("Simulated: ").first.is_visible()


def check_that_the_bucket_editor_moves_padding_and_the_flag(page: Dashboard) -> None:
    trace = page.trace(1)
    padding = trace.locator("[data-row=padding] td").last
    assert padding.inner_text() == "28.4 %"
    trace.locator(".sizes").get_by_role("button", name="12", exact=True).click()
    page.until(lambda: padding.inner_text() != "28.4 %", 10)
    flag = trace.locator("code", has_text="--cudagraph-capture-sizes")
    assert flag.first.inner_text() == "--cudagraph-capture-sizes 1 4 8 12 16 32"
    assert float(padding.inner_text().removesuffix(" %")) < 25
    page.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    pasted = trace.locator(".flag").filter(has_text="--cudagraph-capture-sizes").first
    pasted.get_by_role("button", name="Copy").click()
    copied = page.tab.evaluate("navigator.clipboard.readText()")
    assert copied == "--cudagraph-capture-sizes 1 4 8 12 16 32"
    trace.get_by_role("button", name="Back to the current list").click()
    page.until(lambda: padding.inner_text() == "28.4 %", 10)


def check_that_a_growing_trace_moves_the_page(page: Dashboard, served: Served) -> None:
    """Three moves of nine have to be in time: a machine may be busy, a slow page is always slow.

    Each begins right after the one before was seen, when a page that looks every few seconds has
    just looked.
    """
    steps, fast, took = 50, 0, []
    assert page.tile(0, "steps") == str(steps)
    while fast < 3:
        assert len(took) < 9, took
        steps += 30
        recorded(served.recorder, 5, 30)
        served.recorder.flush()  # from here on they are on disk
        took.append(page.until(lambda: page.tile(0, "steps") == str(steps), 30))  # noqa: B023
        fast += took[-1] < 2
    page.until(lambda: page.found(0) == str(steps), 30)
    assert page.shown.complaints == []


def check_a_phone_in_the_dark(open_page: Callable[..., Dashboard]) -> None:
    found = open_page(**{**PHONE, "device_scale_factor": 1}, color_scheme="dark")
    found.shown.keep("dashboard-phone-dark")
    wide = found.tab.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    picture = pixels(found.trace(1).locator(".plot.times"))
    assert picture[2, 2].mean() < 40
    assert picture[-40:].mean(axis=2).max() > 180  # the axis label
    assert found.shown.complaints == []


def check_that_only_its_own_page_may_talk_to_it(served: Served, browser: Browser) -> None:
    tab = browser.new_page()
    tab.goto("about:blank")
    refused = tab.evaluate(
        """async (url) => new Promise((done) => {
            const socket = new WebSocket(url, ["bokeh", "x"]);
            socket.onopen = () => done("open");
            socket.onerror = () => done("refused");
        })""",
        served.url.replace("http", "ws") + "ws",
    )
    tab.close()
    assert refused == "refused"


def check_that_a_page_without_its_server_says_so(
    open_page: Callable[..., Dashboard], served: Served
) -> None:
    page = open_page()
    told = page.tab.get_by_role("alert")
    assert not told.is_visible()
    served.server.send_signal(2)
    told.wait_for(timeout=15_000)
    assert "No longer connected" in told.inner_text()


def test_the_page(open_page: Callable[..., Dashboard], served: Served, browser: Browser) -> None:
    """All of it in one test: workers of a parallel run share neither server nor page."""
    page = open_page(viewport={"width": 1700, "height": 1000})
    check_that_it_loads_from_the_loopback_alone_and_draws(page)
    check_that_strings_of_a_trace_are_shown_and_not_run(page)
    check_that_a_selected_range_gives_what_report_gives(page)
    check_that_the_bucket_editor_moves_padding_and_the_flag(page)
    check_that_a_growing_trace_moves_the_page(page, served)
    check_that_only_its_own_page_may_talk_to_it(served, browser)
    page.tab.close()
    check_a_phone_in_the_dark(open_page)
    check_that_a_page_without_its_server_says_so(open_page, served)
