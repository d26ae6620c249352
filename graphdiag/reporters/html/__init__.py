"""One self-contained HTML page: opens without a network, prints, and keeps what it shows inert."""

from graphdiag.reporters.html.page import Audit, Card, Figure, Flag, Page, Section, render

__all__ = ["Audit", "Card", "Figure", "Flag", "Page", "Section", "render"]
