"""The report in GitHub Markdown, to paste into an issue tracker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphdiag import wording
from graphdiag.findings import AuditFinding, Report
from graphdiag.reporters import format as fmt
from graphdiag.reporters.advice import Sizes, advice
from graphdiag.reporters.advice import sizes as recommended
from graphdiag.reporters.tables import Sheet, sheets

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])")
_LINKED = re.compile(r"@(?=\w)|#(?=\d)")
_CODE = re.compile(r"(?<!`)(`[\w.=/-]+(?: [\w.=/-]+)*`)(?!`)", re.ASCII)
_TAME = re.compile(r"[\w.:/,=()\[\]{}+ -]+", re.ASCII)


def render(report: Report) -> str:
    """Return the report in GitHub Markdown; the long tables are folded away."""
    return "\n".join(_lines(report)) + "\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is: no markup, HTML, mention or issue link.

    Only a plain word or option between single backticks stays a code span.
    """
    parts = _CODE.split(fmt.clean(text).strip())
    shown = "".join(part if index % 2 else _literal(part) for index, part in enumerate(parts))
    if match := re.match(r"\d+(?=[.)](\s|$))", shown):
        return f"{match[0]}\\{shown[match.end() :]}"
    return f"\\{shown}" if shown[:1] in ("-", "+", "=", "#") else shown


def _literal(text: str) -> str:
    return _LINKED.sub(r"\g<0><!-- -->", _SPECIAL.sub(r"\\\g<0>", text))


def code(text: str) -> str:
    """Return an identifier as a code span where that is safe in a table, else escaped."""
    return f"`{text}`" if _TAME.fullmatch(text) and text == text.strip() else escape(text)


def block(text: str) -> list[str]:
    """Return one line of text as a fenced code block, whatever backticks it holds."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", text, fence]


def _lines(report: Report) -> Iterator[str]:
    yield from ("### graphdiag report", "", f"**Verdict:** {escape(report.verdict.sentence)}", "")
    yield f"Source: {code(fmt.clean(report.source, 300))}; {escape(fmt.subject(report))}."
    for note in report.damage:
        yield from ("", f"**Note**: {escape(note)}")
    if report.engine.get("simulated"):
        yield from ("", f"**Simulated**: {escape(str(report.engine['simulated']))}")
    yield from _cases(report)
    yield from _what_to_do(report)
    yield from _audit(report)
    yield from titled("Not identifiable from this source", report.not_identifiable)
    yield from titled("Notes", fmt.other_notes(report))
    yield from _details(report)


def _cases(report: Report) -> Iterator[str]:
    if not report.cases:
        return
    yield from ("", "| case | its metric | price |", "|---|---|---|")
    for case in report.cases:
        metric = fmt.own_metric(case.case, report)
        price = escape(fmt.price(case))
        if fmt.is_quiet(case):
            price = wording.MISSING if fmt.is_unknown(metric) else "nothing charged to it"
        title = f"{fmt.case_number(case.case)} {case.case}"
        yield f"| {title} | {escape(metric)} | {price} |"
    if any(case.evidence for case in report.cases):
        yield from ("", "#### Evidence", "")
        for case in report.cases:
            yield from (f"- **{case.case}**: {escape(item)}" for item in case.evidence)


def _what_to_do(report: Report) -> Iterator[str]:
    told, sizes = advice(report), recommended(report)
    if not told and sizes is None:
        return
    yield from ("", "#### What to do", "")
    yield from (f"- **{cases}**: {escape(item)}" for cases, item in told)
    if sizes is not None:
        yield from _sizes(sizes)


def _sizes(sizes: Sizes) -> Iterator[str]:
    yield f"- **sizes**: {escape(sizes.sentence)}"
    if sizes.listed:
        yield f"- **captured sizes**: {sizes.listed}"
    for name, flag in sizes.pasted:
        yield from ("", f"Paste for {name}:", "", *block(flag))


def _audit(report: Report) -> Iterator[str]:
    yield from audited("Audit", report.audit)


def audited(title: str, findings: list[AuditFinding]) -> Iterator[str]:
    """Yield audit findings as a list under a title, the worst first; nothing where none are."""
    if findings:
        yield from ("", f"#### {title}", "")
    for finding in fmt.worst_first(findings):
        yield f"- **{finding.severity}** {code(fmt.name(finding.kind))}: {escape(finding.sentence)}"


def titled(title: str, sentences: list[str]) -> Iterator[str]:
    """Yield sentences as a list under a title; nothing where there are none."""
    if sentences:
        yield from ("", f"#### {title}", "")
        yield from (f"- {escape(sentence)}" for sentence in sentences)


def _details(report: Report) -> Iterator[str]:
    yield from ("", "<details><summary>Tables and configuration</summary>", "")
    for sheet in sheets(report):
        yield from table(sheet)
    pairs = fmt.configuration(report)
    if pairs:
        yield from ("#### Configuration", "")
        yield from (f"- {escape(key)}: {escape(value)}" for key, value in pairs)
        yield ""
    yield "</details>"


def table(sheet: Sheet) -> Iterator[str]:
    """Yield the lines of a sheet under its title."""
    yield from (f"#### {sheet.title}", "")
    yield f"| {' | '.join(sheet.headers)} |"
    sides = ["---" if index < sheet.left else "---:" for index in range(len(sheet.headers))]
    yield f"| {' | '.join(sides)} |"
    for row in sheet.rows:
        yield f"| {' | '.join(map(escape, row))} |"
    yield from ("", escape(sheet.legend), "") if sheet.legend else ("",)
