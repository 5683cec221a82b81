"""The starting points of a new job are documents that the service takes, but for files that a user has to name."""

import tomllib
from pathlib import Path

import pytest

from dlrm.config import parse_job
from service.dashboard import endpoints

STARTS = sorted((Path(endpoints.__file__).parent / "static" / "new" / "starts").glob("*.toml"))


def test_the_page_has_a_button_for_each_starting_point() -> None:
    page = (Path(endpoints.__file__).parent / "templates" / "new.html").read_text()
    assert len(STARTS) == page.count("data-start=") > 0
    assert all(f'data-start="{path.stem}"' in page for path in STARTS)


@pytest.mark.parametrize("path", STARTS, ids=lambda path: path.stem)
def test_a_starting_point_is_a_valid_document(path: Path) -> None:
    assert parse_job(tomllib.loads(path.read_text())).name
