"""Search in logs, in files and in pushed parts: the lines that contain a text, a part of the log at a time."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.files.log_service import BLOCK_BYTES, MAX_LINE_CHARACTERS, MAX_SEARCHED_BYTES, Search, search_log
from service.launchers.log_files import LogFile
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.control.rounds import run_until


def search(
    path: Path, text: str, offset: int = 0, limit: int = 100, *, has_ended: bool = True
) -> tuple[list[str], int]:
    matches, next_offset = search_log(LogFile(path), Search(text, offset, limit), has_ended=has_ended)
    content = path.read_bytes()
    assert all(content[match.offset :].startswith(match.text.encode()) for match in matches)
    return [match.text for match in matches], next_offset


@given(
    lines=st.lists(st.text("aAbBü ", max_size=12), max_size=60),
    text=st.text("aAbBü", min_size=1, max_size=2),
    limit=st.integers(1, 5),
)
def test_requests_one_after_the_other_find_each_line_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], text: str, limit: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log"
    path.write_text("\n".join(lines))
    found: list[str] = []
    offset, end = 0, path.stat().st_size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.files.log_service.BLOCK_BYTES", 40)
        while offset < end:
            items, next_offset = search(path, text, offset, limit)
            assert next_offset > offset
            found, offset = found + items, next_offset
    lowered = text.encode().lower()
    assert found == [line for line in lines if lowered in line.encode().lower()]


def test_a_line_that_is_being_written_is_found_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("first error\nsecond err")
    assert search(path, "err", has_ended=False) == (["first error"], 12)
    path.write_text("first error\nsecond error\n")
    assert search(path, "err", 12, has_ended=False) == (["second error"], 25)
    path.write_text("no end")
    assert search(path, "END") == (["no end"], 6)


def test_one_request_searches_a_part_and_sends_the_beginning_of_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = "a" * 99 + "\n"
    path.write_text(line * (MAX_SEARCHED_BYTES // 100 + 2 * BLOCK_BYTES // 100) + "found" + "b" * 5000 + "\n")
    items, offset = search(path, "found")
    assert items == []
    assert MAX_SEARCHED_BYTES - 100 < offset < path.stat().st_size
    assert search(path, "found", offset)[0] == [("found" + "b" * 5000)[:MAX_LINE_CHARACTERS]]


def test_a_log_is_searched_over_rest(api: Api) -> None:
    job = api.submit(labels={"behaviour": "wait"})
    nothing = {"attempt": 1, "rank": 0, "items": [], "next_offset": 0, "complete": False}
    assert find(api, job["id"], q="rank") == nothing
    run_until(api.services, job["id"], "RUNNING")
    wait_until(lambda: find(api, job["id"], q="rank")["items"])
    found = find(api, job["id"], q="GRüEZI")
    assert found["items"] == [{"offset": 0, "text": "rank 0 says grüezi"}]
    assert (found["next_offset"], found["complete"]) == (20, False)
    for query in (
        {},
        {"q": ""},
        {"q": "x" * 201},
        {"q": "x", "rank": 7},
        {"q": "x", "node": 1},
        {"q": "x", "limit": 0},
    ):
        assert api.viewer.get(f"/v1/jobs/{job['id']}/logs/matches", params=query).status_code == 422


def find(api: Api, job_id: str, **query: Any) -> dict[str, Any]:
    answer = api.viewer.get(f"/v1/jobs/{job_id}/logs/matches", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()
