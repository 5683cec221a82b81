"""Objects of a store, through a network that fails."""

import time
from pathlib import Path

import pytest

from dlrm.data.raw.stores import StoreError
from dlrm.record import FileRecord
from dlrm.run_store.fetch import Retries
from dlrm.run_store.objects import ContentError, ObjectStore, RequestError, RequestLimits
from dlrm.run_store.open import check_store, parse_uri, split_run_uri
from tests.bucket.server import WRITES, Bucket

IMPATIENT = RequestLimits(silent_seconds=1.0, num_tries=1)
ONCE = Retries(lambda _: None, limit_seconds=0.0)


def test_what_is_put_is_listed_read_fetched_and_removed(bucket: Bucket, tmp_path: Path):
    store = ObjectStore("s3://bucket/a")
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3_000_000)
    checksum = FileRecord.from_file(file)
    store.put_file(file, "b/c", checksum)
    store.put_bytes("b/d", b"small")
    assert {name: info.num_bytes for name, info in store.list_below("b").items()} == {"b/c": 3_000_000, "b/d": 5}
    assert store.read_bytes("b/d") == b"small"
    assert store.read_bytes("b/none") is None
    store.fetch_file("b/c", tmp_path / "new" / "copy", checksum)
    assert (tmp_path / "new" / "copy").read_bytes() == file.read_bytes()
    store.remove("b/c")
    store.remove("b/c")
    assert list(store.list_below("")) == ["b/d"]
    store.remove_below("b")
    assert store.list_below("") == {}


def test_a_file_that_is_damaged_here_or_there_is_told(bucket: Bucket, tmp_path: Path):
    store = ObjectStore("s3://bucket/a")
    file = tmp_path / "file"
    file.write_bytes(b"right")
    checksum = FileRecord.from_file(file)
    file.write_bytes(b"wrong")
    with pytest.raises(ContentError, match="file is damaged"):
        store.put_file(file, "file", checksum)
    with pytest.raises(ContentError, match=r"s3://bucket/a/file is damaged"):
        store.fetch_file("file", tmp_path / "copy", checksum)
    assert not (tmp_path / "copy").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_requests_that_fail_now_and_then_are_repeated(bucket: Bucket, tmp_path: Path):
    bucket.proxy.failing_fraction = 0.2
    store, retries = ObjectStore("s3://bucket/a"), Retries(lambda _: None)
    names = {f"object-{number}" for number in range(12)}
    for name in names:
        retries.run(lambda name=name: store.put_bytes(name, b"x" * 100))
    assert set(retries.run(lambda: store.list_below(""))) == names
    assert bucket.proxy.num_failed > 0


def test_the_limit_counts_from_the_first_failure_and_not_from_the_work_before_it():
    num_calls = 0

    def work() -> str:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 1:
            time.sleep(0.7)
            raise RequestError("the connection is lost after long work")
        return "done"

    assert Retries(lambda _: None, limit_seconds=0.6).run(work) == "done"
    num_calls = 0
    with pytest.raises(RequestError):
        ONCE.run(work)
    assert num_calls == 1


@pytest.mark.parametrize("state", ["cut", pytest.param("silent", marks=pytest.mark.slow)])
def test_a_store_that_is_cut_off_or_silent_fails_in_time_and_works_again_afterwards(bucket: Bucket, state: str):
    store = ObjectStore("s3://bucket/a", IMPATIENT)
    store.put_bytes("x", b"1")
    bucket.proxy.state = state  # pyright: ignore[reportAttributeAccessIssue]
    for request in (lambda: store.put_bytes("x", b"2"), lambda: store.read_bytes("x"), lambda: store.list_below("")):
        with pytest.raises(RequestError, match=r"s3://bucket/a"):
            request()
    bucket.proxy.state = "well"
    assert store.read_bytes("x") == b"1"


def test_a_store_that_can_be_used_leaves_nothing_of_the_check(bucket: Bucket):
    assert check_store("s3://bucket//runs/", ONCE) == "s3://bucket/runs"
    assert bucket.list_names() == []


def test_a_bucket_that_is_missing_is_told(bucket: Bucket):
    with pytest.raises(StoreError, match=r"s3://other: the bucket does not exist"):
        check_store("s3://other/runs", ONCE)


def test_missing_permission_is_told_at_once(bucket: Bucket):
    bucket.proxy.forbidden = WRITES
    with pytest.raises(StoreError, match=r"s3://bucket/runs/.*: the credentials do not permit it"):
        check_store("s3://bucket/runs", Retries(lambda _: None))


def test_missing_credentials_are_told_with_the_variables_to_set(bucket: Bucket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match=r"s3://bucket/runs: no credentials .* set AWS_ACCESS_KEY_ID"):
        check_store("s3://bucket/runs", ONCE)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("https://bucket/runs", r"https:// is not supported \(valid: s3:// or gs://"),
        ("/disk/runs", "is no URI of a store"),
        ("s3://key:secret@bucket/runs", "contains credentials"),
        ("s3://", "names no bucket"),
    ],
)
def test_a_uri_that_is_none_is_told(uri: str, message: str):
    with pytest.raises(StoreError, match=message) as raised:
        parse_uri(uri)
    assert "secret" not in str(raised.value)


def test_the_uri_of_a_run_has_a_name_below_that_of_the_store():
    assert split_run_uri("s3://bucket/runs/one/") == ("s3://bucket/runs", "one")
    assert split_run_uri("gs://bucket/one") == ("gs://bucket", "one")
    with pytest.raises(StoreError, match="names a bucket, and no run in it"):
        split_run_uri("s3://bucket")
