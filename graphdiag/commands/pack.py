"""``graphdiag pack``: a recording's folder as one file."""

from __future__ import annotations

from pathlib import Path

import click

from graphdiag.commands import common
from graphdiag.errors import GraphdiagError
from graphdiag.paths import printable, unwritable


@click.command()
@common.path_argument("folder")
@common.path_argument("file")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(folder: str, file: str, force: bool) -> None:
    """Pack a recording's folder into one file.

    The FILE is to attach to a bug report; the FOLDER stays as it is.
    """
    if Path(folder).resolve() in Path(file).resolve().parents:
        raise GraphdiagError(
            f"{printable(file)}: lies in the folder to pack; name a file outside it."
        )
    common.keep_sources(file, [folder])
    common.refuse_overwrite(file, force)
    from graphdiag_collectors.pack import pack

    with common.working("packing"):
        try:
            rows = pack(folder, file)
        except ValueError as error:
            raise GraphdiagError(str(error)) from error
        except OSError as error:  # without a number it is a sentence of the collectors'
            sentence = unwritable(printable(file), error) if error.errno else str(error)
            raise GraphdiagError(sentence) from error
    common.written(rows, file)
