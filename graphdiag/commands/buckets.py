"""``graphdiag buckets``: the best sizes to capture for the traffic that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable

if TYPE_CHECKING:
    from graphdiag.buckets.answer import BucketAnswer
    from graphdiag.buckets.setting import Setting
    from graphdiag.places import Place


class Sizes(click.ParamType[tuple[int, ...]]):
    """A list of sizes: ``1,2,4`` or ``1 2 4``, ranges with a step as ``8-64:8``."""

    name = "sizes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the sizes as they were given."""
        if isinstance(value, tuple):
            return value
        from graphdiag.buckets.sizelist import parse_sizes

        try:
            return parse_sizes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Amount(click.ParamType[float]):
    """A finite number of 0 or more."""

    name = "amount"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is no number.", param, ctx)
        if not 0 <= number < float("inf"):
            self.fail(f"{value} is not in the range of 0 and more.", param, ctx)
        return number


SIZES, AMOUNT = Sizes(), Amount()


@click.command()
@common.sources
@common.forms("Print Markdown, for an issue.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of the terminal (-).")
@common.html_page
@click.option("--max-graphs", type=click.IntRange(1), metavar="K", help="Capture at most K graphs.")
@click.option("--budget-mib", type=AMOUNT, metavar="M", help="Hold at most M MiB.")
@click.option(
    "--what-if", type=SIZES, metavar="LIST", help="Price this list, such as 1,2,4,8-64:8."
)
@click.option("--current", type=SIZES, metavar="LIST", help="Sizes captured now, if not recorded.")
@click.option("--keep", type=SIZES, metavar="LIST", help="Sizes that every set must hold.")
@click.option("--forbid", type=SIZES, metavar="LIST", help="Sizes that no set may hold.")
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang", "tensorrt_llm"]),
    help="Whose rules a list must obey; by default the recorded engine's.",
)
@click.option(
    "--phase",
    type=click.Choice(["decode", "prefill"]),
    help="Which list, where an engine keeps two (SGLang).",
)
@click.option(
    "--baseline", metavar="SOURCE", help="Trace of the engine with graphs off: what eager costs."
)
@click.option("--mib-per-graph", type=AMOUNT, metavar="M", help="MiB of one graph.")
@click.option("--pool-mib", type=AMOUNT, metavar="M", help="MiB of the graph pool.")
@click.option("--seconds-per-graph", type=AMOUNT, metavar="S", help="Capture time of one graph.")
def command(
    sources: tuple[str, ...],
    as_json: bool,
    as_markdown: bool,
    output: str | None,
    html: str | None,
    **asked: Any,
) -> None:
    """Choose the sizes to capture, exactly, with the flag to paste.

    SOURCE is a recorded trace, a server log, a profiler's JSON, or a histogram: a CSV of
    requested,count (a range such as 5-8,31% is spread evenly) or the same as JSON.
    """
    form = common.form(as_json, as_markdown)
    common.check_outputs(output, html, sources)
    answer = _answer(sources, asked)
    if html is not None:
        from graphdiag.reporters import buckets_html

        common.deliver(buckets_html.render(answer), html)
    common.show(answer, form, output, markdown="buckets_markdown", text="buckets_text")


def _answer(sources: tuple[str, ...], asked: dict[str, Any]) -> BucketAnswer:
    from dataclasses import replace

    from graphdiag.buckets.memory import given
    from graphdiag.buckets.planner import plan_buckets
    from graphdiag.buckets.wishes import Wishes

    with common.working("reading and choosing"):
        setting = _setting(sources, asked)
        traffic = setting.traffic
        memory = given(
            setting.memory,
            pool_mib=asked["pool_mib"],
            pool_size=int(max(traffic.captured, default=traffic.sizes.max(initial=0))),
            graph_mib=asked["mib_per_graph"],
            graph_seconds=asked["seconds_per_graph"],
        )
        wishes = Wishes(
            max_graphs=asked["max_graphs"],
            budget_mib=asked["budget_mib"],
            keep=asked["keep"] or (),
            forbid=asked["forbid"] or (),
            what_if=asked["what_if"],
        )
        return plan_buckets(replace(setting, memory=memory), wishes)


def _setting(sources: tuple[str, ...], asked: dict[str, Any]) -> Setting:
    from graphdiag.streams import spooled

    with spooled(sources) as copies:
        return _setting_of(sources, copies, asked)


def _setting_of(
    sources: tuple[str, ...], copies: Mapping[str, Place], asked: dict[str, Any]
) -> Setting:
    from graphdiag.bucket_advice import setting_of
    from graphdiag.buckets.setting import of_table
    from graphdiag.buckets.tables import is_size_table, read_size_table
    from graphdiag.sources import open_source
    from graphdiag.summary import summarize

    shown = ", ".join("standard input" if path == "-" else printable(path) for path in sources)
    engine, phase, current = asked["engine"], asked["phase"], asked["current"] or ()
    if any(is_size_table(path, copies.get(path)) for path in sources):
        if len(sources) > 1:
            raise GraphdiagError(f"{shown}: a histogram is read alone; add several up yourself.")
        if asked["baseline"]:
            raise GraphdiagError("--baseline: a histogram has no times to hold against it.")
        table = read_size_table(sources[0], copies.get(sources[0]))
        return of_table(table, shown, engine=engine, phase=phase, current=current)
    baseline = None
    if asked["baseline"]:
        with open_source([asked["baseline"]]) as trace:
            baseline = summarize(trace)
    with open_source(sources, copies) as trace:
        return setting_of(
            summarize(trace),
            shown,
            engine=engine,
            phase=phase,
            current=current,
            baseline=baseline,
        )
