"""One self-contained HTML page: opens without a network, prints, and keeps what it shows inert."""

from graphdiag.reporters.html.page import Figure, Flag, Page, Section, render

__all__ = ["Figure", "Flag", "Page", "Section", "render"]
