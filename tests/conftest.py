"""Fixtures that several test modules share."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("graphdiag", deadline=None)  # a loaded machine is no failure
settings.load_profile("graphdiag")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the repository; tests that need it skip elsewhere."""
    folder = ROOT.parent / "shared"
    if not (folder / "traces" / "truth.json").exists():
        pytest.skip("needs the folder of real engine data beside the repository (../shared)")
    return folder
