"""How words become HTML on every page: escaped, cleaned, and none forgotten."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from graphdiag.reporters import format as fmt

MOST_PASTED = 20_000
"""Characters of a flag: a page stays small whatever a trace says."""


def environment_of(package: str) -> Environment:
    """Return what renders the templates beside the modules of ``package``."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["clean"] = fmt.clean
    return environment
