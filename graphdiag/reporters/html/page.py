"""The frame of every page: what goes on one, and how it becomes a file.

What a trace says is untrusted. Jinja escapes it where it is text, ``tojson`` where it is a
picture's data, and Bokeh where it is under the pointer; beyond that the page's policy lets no
script run but the three it came with, and nothing reach a network.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bokeh.document import Document
from bokeh.resources import Resources
from jinja2 import Environment

from graphdiag import __version__
from graphdiag.findings import AuditFinding
from graphdiag.plots.figures import figure as drawn
from graphdiag.plots.picture import Picture, Words
from graphdiag.reporters import format as fmt
from graphdiag.reporters.html.templating import MOST_PASTED, environment_of
from graphdiag.reporters.tables import Sheet

MOST_LINES = 100
"""Lines of a list: a page stays small whatever a trace says."""


@dataclass(frozen=True)
class Flag:
    """Something to paste, whole: ``title`` says where, ``text`` is what the button copies."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A heading over sentences (as given; shortened and escaped here) and what to paste."""

    title: str
    lines: Sequence[str] = ()
    flags: Sequence[Flag] = ()


@dataclass(frozen=True)
class Figure:
    """A picture, or words in its place; ``reading`` says how to read it."""

    title: str
    reading: str
    plot: Picture | Words


@dataclass(frozen=True)
class Card:
    """One figure that matters, beside the others.

    Attributes
    ----------
    title
        What it is about.
    figures
        (figure, what it is) pairs; the first are read first.
    lines
        What the figures are over, and evidence.
    mark
        A word on top, where the card is the one that the answer is about.
    is_quiet
        Whether there is nothing in it to mend.
    """

    title: str
    figures: Sequence[tuple[str, str]]
    lines: Sequence[str] = ()
    mark: str = ""
    is_quiet: bool = False


@dataclass(frozen=True)
class Audit:
    """A heading over findings, the worst first; ``reading`` says what they are."""

    title: str
    reading: str
    findings: Sequence[AuditFinding]


@dataclass(frozen=True)
class Page:
    """A page from top to bottom.

    Attributes
    ----------
    title
        What the browser's tab and the line above the answer say.
    answer
        The sentence on top.
    about
        What it is about: the source and its traffic.
    advice
        What to do, before the pictures.
    figures, sheets
        Pictures, then tables.
    notes
        What is not known, and remarks, at the end.
    warnings
        What of the source the answer cannot be trusted for, under ``about``.
    cards
        The figures that matter most, before the advice.
    first
        Tables that are read before the pictures.
    audit
        What was found without timing, after the pictures.
    """

    title: str
    answer: str
    about: Sequence[str]
    advice: Sequence[Section]
    figures: Sequence[Figure]
    sheets: Sequence[Sheet]
    notes: Sequence[Section]
    warnings: Sequence[str] = ()
    cards: Sequence[Card] = ()
    first: Sequence[Sheet] = ()
    audit: Audit | None = None


def render(page: Page) -> str:
    """Return ``page`` as one HTML file that needs no other."""
    drawn = [_drawn(figure, number) for number, figure in enumerate(page.figures)]
    bokeh = _bokeh() if any(one["item"] for one in drawn) else []
    scripts = [*bokeh, _asset("page.js")]
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            advice=[_section(section) for section in page.advice],
            audit=None if page.audit is None else _audited(page.audit),
            notes=[_section(section) for section in page.notes if section.lines],
            figures=drawn,
            style=_asset("page.css"),
            scripts=scripts,
            hashes=" ".join(map(_hash, scripts)),
            version=__version__,
        )
    )


def _section(section: Section) -> Section:
    """Return a section with its lines and flags cleaned and, where they are endless, cut."""
    lines = [fmt.clean(line) for line in section.lines[:MOST_LINES]]
    more = len(section.lines) - len(lines)
    return Section(
        fmt.clean(section.title),
        [*lines, f"{more:,} more are in --json."] if more else lines,
        [Flag(flag.title, fmt.clean(flag.text, MOST_PASTED)) for flag in section.flags],
    )


def _audited(audit: Audit) -> Audit:
    """Return an audit with the worst findings first and, where they are endless, cut."""
    return Audit(audit.title, audit.reading, fmt.worst_first(audit.findings)[:MOST_LINES])


def _drawn(figure: Figure, number: int) -> dict[str, Any]:
    """Return a figure for the template: words, or the item that Bokeh embeds."""
    told = {"figure": figure, "words": None, "item": None, "target": f"plot-{number}"}
    if isinstance(figure.plot, Words):
        return told | {"words": figure.plot.html}
    return told | {"item": _item(drawn(figure.plot))}


def _item(root: Any) -> dict[str, Any]:
    """Return a figure as the item that ``Bokeh.embed.embed_item`` draws.

    As :func:`bokeh.embed.json_item`, without its search for themes and for callbacks in Python,
    which takes as long again.
    """
    document = Document()
    document.add_root(root)
    return {"root_id": root.id, "doc": document.to_json(deferred=False)}


@cache
def _environment() -> Environment:
    environment = environment_of(__package__)
    # Bokeh reads its items in order: a reference comes after what it refers to.
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment


@cache
def _asset(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


@cache
def _bokeh() -> list[str]:
    """Return Bokeh's own scripts, without widgets and tables."""
    resources = Resources(mode="inline", components=["bokeh"], log_level="error")
    return [str(script) for script in resources.js_raw]


def _hash(script: str) -> str:
    """Return a script's source expression in a Content-Security-Policy."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
