"""Growing sets of objects below a prefix, in a real S3 server on loopback."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.follow import prepare
from dlrm.data.follow.prepare import Follower
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from tests.bucket.server import BUCKET, Bucket
from tests.dlrm.data.test_follow import SIZES, follow, make_config, write_day

pytest_plugins = ["tests.bucket.fixtures"]

KEY = "clicks/day_{}.csv"


class FollowedBucket:
    """A follower of the objects below s3://bucket/clicks, with the events that it reports."""

    def __init__(
        self, bucket: Bucket, directory: Path, train: str = "s3://bucket/clicks/day_*.csv", **follow: Any
    ) -> None:
        document = make_config(directory, **follow).model_dump(mode="json", by_alias=True)
        self.notes: list[str] = []
        config = DataConfig.model_validate({**document, "train": [train]})
        self.follower = Follower(config, ["s3://bucket/clicks"], directory / "prepared", None, 1, self._add)
        self._bucket, self._directory = bucket, directory

    def bring(self, *days: int) -> None:
        for day in days:
            write_day(self._directory / "day.csv", day)
            self._bucket.write(KEY.format(day), (self._directory / "day.csv").read_bytes())

    def read_first_of_two(self) -> int:
        """Read one day, and bring another one. Return the rows of the first."""
        self.bring(0)
        first = self.follower.prepare_next(batch_rows=512, num_trained=-1)
        self.bring(3)
        return first.num_rows

    def _add(self, event: ProgressEvent | NoteEvent) -> None:
        if isinstance(event, NoteEvent):
            self.notes.append(event.name)


def test_objects_that_come_one_by_one_make_the_pieces_of_files_on_disk(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    expected, _ = follow(tmp_path / "disk", [range(6)])
    followed = FollowedBucket(bucket, tmp_path)
    for days in ((0,), (1, 2), (3, 4, 5)):
        followed.bring(*days)
        # A part of an upload, and what other programs leave, are no objects of the set.
        bucket.write("clicks/_temporary/day_9.csv", b"x")
        followed.follower.prepare_next(batch_rows=512, num_trained=-1)
    ledger = followed.follower.prepare_next(batch_rows=512, num_trained=sum(SIZES))
    assert [file.name for file in ledger.files] == [f"s3://bucket/{KEY.format(day)}" for day in range(6)]
    assert [piece.num_rows for piece in ledger.pieces] == [piece.num_rows for piece in expected.pieces]
    assert [piece.checksum for piece in ledger.pieces] == [piece.checksum for piece in expected.pieces]
    assert set(followed.notes) == {"files_read"}


def test_a_late_object_is_read_next_and_one_written_anew_is_not_read_again(bucket: Bucket, tmp_path: Path) -> None:
    followed = FollowedBucket(bucket, tmp_path)
    followed.bring(0, 3)
    followed.follower.prepare_next(batch_rows=512, num_trained=-1)
    followed.bring(1)
    bucket.write(KEY.format(0), b"y,w,x,a,b,c\n1,1,0.5,3,t1,c1\n")
    ledger = followed.follower.prepare_next(batch_rows=512, num_trained=sum(SIZES))
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3", "day_1"]
    assert followed.notes.count("file_late") == followed.notes.count("file_changed") == 1


@pytest.mark.parametrize(
    "work", ["stage", *(pytest.param(work, marks=pytest.mark.slow) for work in ("look", "check_unchanged"))]
)
def test_a_store_that_fails_is_asked_again(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """The store fails during this work, and has answered again before the follower does anything else."""
    followed = FollowedBucket(bucket, tmp_path)
    num_rows = followed.read_first_of_two()
    begin = getattr(prepare, work)

    def fail_and_begin(*arguments: Any) -> Any:
        bucket.proxy.failing_fraction = 0.0 if bucket.proxy.num_failed else 1.0
        try:
            return begin(*arguments)
        finally:
            bucket.proxy.failing_fraction = 0.0

    monkeypatch.setattr(prepare, work, fail_and_begin)
    ledger = followed.follower.prepare_next(batch_rows=512, num_trained=num_rows)
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3"]
    assert followed.notes == ["files_read", "look_failed", "files_read"]


@pytest.mark.parametrize("work", ["look", "stage"])
def test_a_store_that_is_down_for_the_idle_minutes_ends_no_job_and_is_reported_once(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    followed = FollowedBucket(bucket, tmp_path)
    num_rows = followed.read_first_of_two()
    begin = getattr(prepare, work)
    errors = [OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation")] * 3

    def fail_thrice(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return begin(*arguments)

    monkeypatch.setattr(prepare, work, fail_thrice)
    ledger = followed.follower.prepare_next(batch_rows=512, num_trained=num_rows)
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3"]
    assert followed.notes == ["files_read", "look_failed", "files_read"]


def list_requests(day: int, *verbs: str) -> tuple[bytes, ...]:
    return tuple(f"{verb} /{BUCKET}/{KEY.format(day)} ".encode() for verb in verbs)


@pytest.mark.parametrize("verbs", [("HEAD", "GET"), ("GET",)])
def test_an_object_without_rights_is_refused_once_and_read_when_they_come(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verbs: Sequence[str]
) -> None:
    followed = FollowedBucket(bucket, tmp_path, idle_minutes=None)
    num_rows = followed.read_first_of_two()
    begin, num_looks = prepare.look, 0

    def look(*arguments: Any) -> Any:
        nonlocal num_looks
        num_looks += 1
        bucket.proxy.forbidden = list_requests(3, *verbs) if num_looks <= 3 else ()
        return begin(*arguments)

    monkeypatch.setattr(prepare, "look", look)
    ledger = followed.follower.prepare_next(batch_rows=512, num_trained=num_rows)
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3"]
    assert followed.notes == ["files_read", "file_refused", "files_read"]


def test_a_first_object_without_rights_and_one_at_the_end_are_errors(bucket: Bucket, tmp_path: Path) -> None:
    followed = FollowedBucket(bucket, tmp_path)
    followed.bring(0)
    for day, num_trained in ((0, -1), (3, 2048)):
        bucket.proxy.forbidden = list_requests(day, "HEAD", "GET")
        said = rf"day_{day}\.csv: not readable: the credentials do not permit it \(valid: an object that this user may"
        with pytest.raises(DataError, match=said):
            followed.follower.prepare_next(batch_rows=512, num_trained=num_trained)
        bucket.proxy.forbidden = ()
        followed.follower.prepare_next(batch_rows=512, num_trained=-1)
        followed.bring(3)


def test_a_table_in_a_bucket_and_a_prefix_outside_the_roots_are_refused(bucket: Bucket, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "table"), pa.table({"y": [0, 1], "a": [1, 2]}))
    for path in sorted((tmp_path / "table").rglob("*")):
        if path.is_file():
            bucket.write(f"clicks/table/{path.relative_to(tmp_path / 'table')}", path.read_bytes())
    for train, said in (
        ("s3://bucket/clicks/table", "data.follow: is of a table"),
        ("s3://bucket/other", "outside"),
    ):
        followed = FollowedBucket(bucket, tmp_path, train)
        with pytest.raises(DataError, match=said):
            followed.follower.prepare_next(batch_rows=512, num_trained=-1)
