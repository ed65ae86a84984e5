"""Where things are: the project folder and the layout of results/ and reports/."""

from __future__ import annotations

from pathlib import Path

from expertmiss.errors import UserError


def project_root() -> Path:
    """The folder with the Snakefile: the working directory or one above it, else the checkout of an editable install.

    Raises:
        UserError: neither is a checkout of the project.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (folder / "Snakefile").is_file() and (folder / "config" / "config.yaml").is_file():
            return folder
    raise UserError(f"{here}: not inside a checkout of expertmiss (no Snakefile with config/config.yaml); change to the project folder")
