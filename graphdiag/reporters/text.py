"""The report for a terminal: verdict, why, what to do, audit, tables, what is unknown."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from graphdiag.findings import AuditFinding, Case, Report
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import Sizes, advice
from graphdiag.reporters.advice import sizes as recommended
from graphdiag.reporters.tables import Sheet, sheets

WIDTH = 80
TABLE_WIDTH = 60
"""Columns below which a table would fold the digits of its numbers."""
_SEVERITIES = {"error": "bold red", "warn": "yellow", "info": "dim"}


def render(report: Report, *, width: int = WIDTH, color: bool = False) -> str:
    """Return the report as text, no line wider than ``width`` columns.

    Without ``color`` the text holds no control codes at all, and nothing is said by
    colour alone.
    """
    return to_text(_sections(report, width), width=width, color=color)


def to_text(sections: Iterable[RenderableType], *, width: int = WIDTH, color: bool = False) -> str:
    """Lay out rich renderables as text; without ``color`` it holds no control codes."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    with console.capture() as capture:
        for section in sections:
            console.print(section)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().rstrip().split("\n"))


def _sections(report: Report, width: int) -> Iterator[RenderableType]:
    yield _verdict(report)
    yield Text(f"Source: {fmt.clean(report.source, 300)}; {fmt.subject(report)}.", "dim")
    if report.damage:
        yield bullets((Text("!", "bold yellow"), fmt.clean(note)) for note in report.damage)
    if report.engine.get("simulated"):
        yield Text(f"Simulated: {fmt.clean(str(report.engine['simulated']))}", "yellow")
    yield from _why(report)
    yield from _what_to_do(report)
    yield from _audit(report)
    for sheet in sheets(report):
        yield from table(sheet, width)
    yield from titled("Not identifiable from this source", report.not_identifiable)
    yield from titled("Notes", fmt.other_notes(report))
    yield from _configuration(report)


def heading(title: str) -> Text:
    """Return a section's title, an empty line above it."""
    return Text(f"\n{title}", "bold")


def bullets(items: Iterable[tuple[str | Text, str]], indent: int = 2) -> RenderableType:
    """Return (mark, sentence) pairs as a list with hanging indents."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for mark, sentence in items:
        grid.add_row(mark, Text(sentence))
    return Padding(grid, (0, 0, 0, indent))


def _verdict(report: Report) -> RenderableType:
    style = "bold" if report.verdict.case is None else "bold red"
    return Text.assemble(("Verdict: ", style), fmt.clean(report.verdict.sentence))


def _why(report: Report) -> Iterator[RenderableType]:
    if report.cases:
        yield heading("Why (the four cases, worst first)")
    for case in report.cases:
        yield _case(case, report)


def _case(case: Case, report: Report) -> RenderableType:
    number = Text(f"{fmt.case_number(case.case)} {case.case}:", "bold")
    if fmt.is_quiet(case):
        return bullets([(number, fmt.quiet_line(case, report))])
    title = Text.assemble(number, f" {fmt.CASE_TITLES[case.case]}")
    told = case.evidence or [fmt.own_metric(case.case, report)]
    facts = [fmt.price(case), *map(fmt.clean, told)]
    return Padding(Group(title, bullets(("-", fact) for fact in facts)), (0, 0, 0, 2))


def _what_to_do(report: Report) -> Iterator[RenderableType]:
    told, sizes = advice(report), recommended(report)
    if not told and sizes is None:
        return
    yield heading("What to do")
    for cases, sentence in told:
        yield bullets([(f"{cases}:", sentence)])
    if sizes is not None:
        yield from _sizes(sizes)


def _sizes(sizes: Sizes) -> Iterator[RenderableType]:
    yield bullets([("sizes:", sizes.sentence)])
    if sizes.listed:
        yield bullets([("captured sizes:", sizes.listed)])
    for name, flag in sizes.pasted:
        yield Padding(Text(f"Paste for {name}:"), (0, 0, 0, 2))
        yield Flag(flag)


class Flag:
    """An engine flag that stays pasteable when it is wider than the terminal."""

    def __init__(self, flag: str) -> None:
        self.flag = flag

    def __rich_console__(self, console: Console, options: object) -> Iterator[Text]:
        """Yield the flag's lines, broken where a shell reads them as one."""
        yield from (Text(line, "cyan", overflow="fold") for line in fold(self.flag, console.width))


def fold(flag: str, width: int) -> list[str]:
    r"""Break a shell flag at spaces into lines of ``width``, indented by four.

    Lines end in ``\`` outside quotes, where a shell needs it; inside quotes, and in text
    that is no shell flag (YAML), a line break is already harmless.
    """
    lines: list[str] = []
    line = ""
    shell = flag.startswith("-")
    for word in flag.split(" "):
        if line and len(line) + len(word) + 9 > width:
            quoted = "".join((*lines, line)).count("'") % 2 == 1
            lines.append(f"{line} \\" if shell and not quoted else line)
            line = word
        else:
            line = f"{line} {word}".lstrip()
    lines.append(line)
    return [f"{'    ' if index == 0 else '      '}{line}" for index, line in enumerate(lines)]


def _audit(report: Report) -> Iterator[RenderableType]:
    if not report.audit:
        return
    yield heading("Audit of the configuration and the dispatch")
    yield audit(report.audit)


def audit(findings: Sequence[AuditFinding]) -> RenderableType:
    """Lay out audit findings as a list, the worst first."""
    return bullets(
        (
            Text(finding.severity, _SEVERITIES[finding.severity]),
            f"{fmt.name(finding.kind)}: "
            f"{fmt.clean(finding.sentence, 300 if finding.severity == 'info' else 1200)}",
        )
        for finding in fmt.worst_first(findings)
    )


def table(sheet: Sheet, width: int) -> Iterator[RenderableType]:
    """Lay out a sheet under its title, row by row where ``width`` is too narrow for a table."""
    yield from _as_table(sheet) if width >= TABLE_WIDTH else _as_rows(sheet)


def _as_table(sheet: Sheet) -> Iterator[RenderableType]:
    yield heading(sheet.title)
    grid = Table(box=None, padding=(0, 1), pad_edge=False, show_edge=False)
    for index, header in enumerate(sheet.headers):
        left = index < sheet.left
        grid.add_column(Text(header, "dim"), justify="left" if left else "right", overflow="fold")
    for row in sheet.rows:
        grid.add_row(*map(Text, row))
    yield Padding(grid, (0, 0, 0, 2))
    if sheet.legend:
        yield Padding(Text(sheet.legend, "dim"), (0, 0, 0, 2))


def _as_rows(sheet: Sheet) -> Iterator[RenderableType]:
    """Lay a table out row by row, for a terminal in which its numbers would be folded."""
    yield heading(sheet.title)
    for row in sheet.rows:
        named = zip(sheet.headers[sheet.left :], row[sheet.left :], strict=True)
        cells = ", ".join(f"{header} {cell}" for header, cell in named if cell)
        yield bullets([("-", f"{' '.join(filter(None, row[: sheet.left]))}: {cells}")])
    if sheet.legend:
        yield Padding(Text(sheet.legend, "dim"), (0, 0, 0, 2))


def titled(title: str, sentences: Sequence[str]) -> Iterator[RenderableType]:
    """Lay out sentences as a list under a title; nothing where there are none."""
    if sentences:
        yield heading(title)
        yield bullets(("-", fmt.clean(sentence)) for sentence in sentences)


def _configuration(report: Report) -> Iterator[RenderableType]:
    pairs = fmt.configuration(report)
    if pairs:
        yield heading("Configuration")
        yield bullets(pairs)
