"""How words become HTML on every page: escaped, cleaned, and none forgotten."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from graphdiag.reporters import format as fmt


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
