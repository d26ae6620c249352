"""``graphdiag pack``: a recording's folder as one file."""

from __future__ import annotations

from pathlib import Path

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError


@click.command()
@click.argument("folder")
@click.argument("file")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(folder: str, file: str, force: bool) -> None:
    """Pack a recording's folder into one file.

    The FILE is to attach to a bug report; the FOLDER stays as it is.
    """
    if Path(folder).resolve() in Path(file).resolve().parents:
        raise GraphdiagError(f"{file}: lies in the folder to pack; name a file outside it.")
    common.keep_sources(file, [folder])
    common.refuse_overwrite(file, force)
    from graphdiag_collectors.pack import pack

    with common.working("packing"):
        try:
            rows = pack(folder, file)
        except (ValueError, FileNotFoundError) as error:
            raise GraphdiagError(str(error)) from error
    common.written(rows, file)
