"""Uploads of a run directory, and what is fetched from them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dlrm.checkpoint.keep import list_not_uploaded, remove_old_checkpoints
from dlrm.record import COMPLETE, UPLOADED, EndReason, Outcome, RunDirectory, list_checkpoints
from dlrm.run_store.fetch import (
    LaterAttemptError,
    Retries,
    check_is_newest,
    check_is_unfinished,
    fetch_checkpoints,
    fetch_model,
    fetch_small_files,
    find_remote_step,
    list_missing_files,
)
from dlrm.run_store.layout import name_content
from dlrm.run_store.lease import LeaseLostError
from dlrm.run_store.objects import ObjectStore, RequestError
from dlrm.run_store.upload import Uploader, UploadPart
from tests.bucket.server import Bucket
from tests.dlrm.run_store.runs import RUN, make_run, write_checkpoint, write_manifest
from tests.patience import wait_until

RETRIES = Retries(lambda _: None)
STEP = "runs/run/checkpoints/step-000000"


def name_files(directory: RunDirectory, step: int) -> str:
    """Return the name below which the files of a checkpoint are in the bucket."""
    return f"runs/run/{name_content(step, (directory.checkpoint(step) / COMPLETE).read_bytes())}"


class Events:
    """The events that were told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, name: str, message: str, **details: Any) -> None:
        assert name == UPLOADED
        assert details["seconds"] >= 0
        self.messages.append(message)


def make_uploader(directory: RunDirectory, part: UploadPart | None = None, events: Events | None = None) -> Uploader:
    return Uploader(ObjectStore(RUN), directory, part or UploadPart(1), lambda: None, events or Events())


def upload_all(uploader: Uploader) -> None:
    for _ in range(20):
        uploader.upload()
        if not uploader.list_left().names:
            return
    raise AssertionError(uploader.list_left().describe())


def list_steps(directory: RunDirectory) -> list[int]:
    return [checkpoint.step for checkpoint in list_checkpoints(directory.checkpoints)]


def fetch(path: Path) -> RunDirectory:
    directory = RunDirectory(path)
    fetch_small_files(ObjectStore(RUN), directory, RETRIES)
    assert directory.spec.exists()
    fetch_checkpoints(ObjectStore(RUN), directory, RETRIES, replaces=False)
    return directory


def test_a_run_is_made_again_from_what_was_uploaded(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    for step in (10, 20):
        write_checkpoint(directory, step)
    Outcome(state="failed", reason=EndReason.WORKER_CRASHED).write_first(directory.attempt(1).outcome)
    events = Events()
    uploader = make_uploader(directory, events=events)
    upload_all(uploader)
    uploader.upload_end()
    again = fetch(tmp_path / "again")
    assert list_steps(again) == [20, 10]
    for step in (10, 20):
        for file in directory.checkpoint(step).iterdir():
            assert (again.checkpoint(step) / file.name).read_bytes() == file.read_bytes()
    assert again.spec.read_bytes() == directory.spec.read_bytes()
    assert Outcome.read(again.attempt(1).outcome) == Outcome.read(directory.attempt(1).outcome)
    assert list_not_uploaded(again) == []
    # The newest one first: it is what a lost machine is missed for.
    assert [message.partition(" is in")[0] for message in events.messages] == [
        "the checkpoint of step 20",
        "the checkpoint of step 10",
    ]


def test_secrets_and_marks_of_an_attempt_stay_here(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    attempt = directory.attempt(1)
    attempt.push_target.write_text('{"token": "secret"}')
    attempt.stop_request.touch()
    attempt.nodes_token.write_text("token")
    attempt.rank_log(0).write_text("a line\n")
    make_uploader(directory).upload_end()
    assert bucket.list_names("runs/run/attempt-1") == ["runs/run/attempt-1/logs/rank-0.log"]


@pytest.mark.slow
def test_a_checkpoint_is_complete_in_the_bucket_only_after_all_its_files(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    write_checkpoint(directory, 10, num_files=6)
    uploader = make_uploader(directory)
    bucket.proxy.failing_fraction = 0.2
    for _ in range(200):
        names = bucket.list_names("runs/run/checkpoints")
        assert f"{STEP}10/{COMPLETE}" not in names or len(names) == 7
        try:
            uploader.upload()
        except RequestError:
            continue
        if not uploader.list_left().names:
            break
    assert len(bucket.list_names("runs/run/checkpoints")) == 7


def test_a_checkpoint_that_is_damaged_here_is_not_complete_there(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    path = write_checkpoint(directory, 10)
    (path / "__0_0.distcp").write_bytes(b"x" * 1000)
    uploader = make_uploader(directory)
    with pytest.raises(RequestError, match="is damaged"):
        uploader.upload()
    assert f"{STEP}10/{COMPLETE}" not in bucket.list_names()
    assert uploader.list_left().names == ["the checkpoint of step 10"]


def test_a_checkpoint_that_is_written_again_is_uploaded_again(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    path = write_checkpoint(directory, 10)
    uploader = make_uploader(directory)
    upload_all(uploader)
    (path / "__0_0.distcp").write_bytes(b"other")
    write_manifest(path, 10, [path / "__0_0.distcp", path / "__1_0.distcp"])
    assert len(list_not_uploaded(directory)) == 1
    upload_all(uploader)
    assert bucket.read(f"{name_files(directory, 10)}/__0_0.distcp") == b"other"
    assert bucket.read(f"{STEP}10/{COMPLETE}") == (path / COMPLETE).read_bytes()


def test_old_checkpoints_leave_the_bucket_only_once_a_newer_one_is_there(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    uploader = make_uploader(directory)
    write_checkpoint(directory, 10)
    upload_all(uploader)
    write_checkpoint(directory, 20)
    remove_old_checkpoints(directory, 20, num_kept=1)
    # 10 is in the bucket, but no newer one is: what is removed here stays there.
    assert list_steps(directory) == [20]
    uploader.upload_end()
    assert f"{STEP}10/{COMPLETE}" in bucket.list_names()
    upload_all(uploader)
    assert [name for name in bucket.list_names() if COMPLETE in name] == [f"{STEP}20/{COMPLETE}"]
    assert not [name for name in bucket.list_names() if "step-00000010" in name]


def test_no_checkpoint_is_removed_here_before_it_or_a_newer_one_is_in_the_bucket(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    for step in (10, 20, 30, 40):
        write_checkpoint(directory, step)
        remove_old_checkpoints(directory, step, num_kept=1)
    assert list_steps(directory) == [40, 30, 20, 10]
    uploader = make_uploader(directory)
    uploader.upload()
    write_checkpoint(directory, 50)
    remove_old_checkpoints(directory, 50, num_kept=1, best_step=20)
    # 40 is in the bucket; 50 is not, and is the newest; 20 is the best.
    assert list_steps(directory) == [50, 20]
    upload_all(uploader)
    assert [name for name in bucket.list_names() if COMPLETE in name] == [
        f"{STEP}20/{COMPLETE}",
        f"{STEP}50/{COMPLETE}",
    ]


def test_the_files_of_several_nodes_make_one_checkpoint_once_all_are_there(bucket: Bucket, tmp_path: Path):
    nodes = [make_run(tmp_path / f"node{node}" / "run") for node in (0, 1)]
    whole = write_checkpoint(make_run(tmp_path / "whole"), 10)
    for node, directory in enumerate(nodes):
        directory.checkpoint(10).mkdir(parents=True)
        for name in (f"__{node}_0.distcp", COMPLETE):
            (directory.checkpoint(10) / name).write_bytes((whole / name).read_bytes())
    uploaders = [make_uploader(directory, UploadPart(1, node, is_shared=False)) for node, directory in enumerate(nodes)]
    uploaders[0].upload()
    assert uploaders[0].list_left().is_only_waiting
    assert f"{STEP}10/{COMPLETE}" not in bucket.list_names()
    uploaders[1].upload()
    assert f"{STEP}10/{COMPLETE}" not in bucket.list_names()
    # It may still be lost, and is as little marked as on node 0.
    assert list_not_uploaded(nodes[1]) != []
    for uploader in uploaders:
        wait_until(lambda uploader=uploader: uploader.upload() or uploader.list_left().names == [])
    assert f"{STEP}10/{COMPLETE}" in bucket.list_names()
    assert list_not_uploaded(nodes[1]) == []
    again = fetch(tmp_path / "again")
    for file in whole.iterdir():
        assert (again.checkpoint(10) / file.name).read_bytes() == file.read_bytes()
    # Each node fetches what the other one has written.
    fetch_checkpoints(ObjectStore(RUN), nodes[0], RETRIES, replaces=True)
    assert {path.name for path in nodes[0].checkpoint(10).iterdir()} == {path.name for path in whole.iterdir()}


def test_files_of_another_try_of_a_node_do_not_complete_a_checkpoint(bucket: Bucket, tmp_path: Path):
    node = make_run(tmp_path / "run")
    whole = write_checkpoint(make_run(tmp_path / "whole"), 10)
    node.checkpoint(10).mkdir(parents=True)
    for name in ("__0_0.distcp", COMPLETE):
        (node.checkpoint(10) / name).write_bytes((whole / name).read_bytes())
    bucket.write(f"{name_files(node, 10)}/__1_0.distcp", b"x" * 1000)
    bucket.write(f"{name_files(node, 10)}/parts/node-1.json", json.dumps({"__1_0.distcp": "0" * 64}).encode())
    uploader = make_uploader(node, UploadPart(1, 0, is_shared=False))
    uploader.upload()
    uploader.upload()
    assert f"{STEP}10/{COMPLETE}" not in bucket.list_names()


def test_a_damaged_checkpoint_in_the_bucket_is_passed_over(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    for step in (10, 20):
        write_checkpoint(directory, step)
    upload_all(make_uploader(directory))
    bucket.write(f"{name_files(directory, 20)}/__0_0.distcp", b"y" * 1000)
    told: list[str] = []
    again = RunDirectory(tmp_path / "again")
    fetch_checkpoints(ObjectStore(RUN), again, Retries(told.append), replaces=False)
    assert [step for step in (10, 20) if (again.checkpoint(step) / COMPLETE).exists()] == [10]
    assert any("step 20 is passed over" in text for text in told)


def test_the_remains_of_a_fetch_that_was_killed_do_no_harm(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    write_checkpoint(directory, 10)
    upload_all(make_uploader(directory))
    again = RunDirectory(tmp_path / "again")
    again.checkpoint(10).mkdir(parents=True)
    # Of the right size, as of another try to write this checkpoint.
    (again.checkpoint(10) / "__0_0.distcp").write_bytes(b"z" * 1000)
    fetch_checkpoints(ObjectStore(RUN), again, RETRIES, replaces=False)
    name = "__0_0.distcp"
    assert (again.checkpoint(10) / name).read_bytes() == (directory.checkpoint(10) / name).read_bytes()


def test_the_model_is_whole_in_the_bucket_or_not_there(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    directory.model.mkdir()
    (directory.model / "weights").write_bytes(b"weights")
    (directory.model / "MODEL_CARD.md").write_text("card")
    checksum = hashlib.sha256(b"weights").hexdigest()
    manifest = {"format": 1, "files": {"weights": {"num_bytes": 7, "sha256": checksum}}}
    (directory.model / "manifest.json").write_text(json.dumps(manifest))
    assert not fetch_model(ObjectStore(RUN), tmp_path / "none", RETRIES)
    upload_all(make_uploader(directory))
    assert fetch_model(ObjectStore(RUN), tmp_path / "model", RETRIES)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"weights", "MODEL_CARD.md", "manifest.json"}


def test_a_launch_that_has_lost_its_lease_writes_nothing(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    write_checkpoint(directory, 10)

    def refuse() -> None:
        raise LeaseLostError("taken over")

    with pytest.raises(LeaseLostError):
        Uploader(ObjectStore(RUN), directory, UploadPart(1), refuse, Events()).upload()
    assert bucket.list_names() == []


def test_a_launch_that_loses_its_lease_writes_no_more_files(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    write_checkpoint(directory, 10, num_files=12)

    def require() -> None:
        if "step-00000010" in " ".join(bucket.list_names()):
            raise LeaseLostError("taken over")

    with pytest.raises(LeaseLostError):
        Uploader(ObjectStore(RUN), directory, UploadPart(1), require, Events()).upload()
    assert len(bucket.list_names("runs/run/checkpoints")) <= 4


def test_two_launches_that_write_the_same_checkpoint_never_mix_their_files(bucket: Bucket, tmp_path: Path):
    first, second = (make_run(tmp_path / name / "run") for name in ("first", "second"))
    for directory in (first, second):
        write_checkpoint(directory, 10)
    upload_all(make_uploader(second))
    # What the first one still had on its way comes late.
    for file in first.checkpoint(10).iterdir():
        if file.name != COMPLETE:
            bucket.write(f"{name_files(first, 10)}/{file.name}", file.read_bytes())
    again = fetch(tmp_path / "again")
    for file in second.checkpoint(10).iterdir():
        assert (again.checkpoint(10) / file.name).read_bytes() == file.read_bytes()


def test_newer_checkpoints_in_the_bucket_are_not_removed(bucket: Bucket, tmp_path: Path):
    elsewhere, here = (make_run(tmp_path / name / "run") for name in ("elsewhere", "here"))
    for step in (10, 90):
        write_checkpoint(elsewhere, step)
    upload_all(make_uploader(elsewhere))
    write_checkpoint(here, 20)
    upload_all(make_uploader(here))
    assert [name for name in bucket.list_names() if COMPLETE in name] == [
        f"{STEP}{step}/{COMPLETE}" for step in (20, 90)
    ]


def test_an_intact_checkpoint_stays_where_the_one_that_replaces_it_cannot_be_fetched(bucket: Bucket, tmp_path: Path):
    elsewhere, here = (make_run(tmp_path / name / "run") for name in ("elsewhere", "here"))
    for directory in (elsewhere, here):
        write_checkpoint(directory, 10)
    upload_all(make_uploader(elsewhere))
    name = f"{name_files(elsewhere, 10)}/__0_0.distcp"
    whole, own = bucket.read(name), (here.checkpoint(10) / "__0_0.distcp").read_bytes()
    bucket.write(name, b"damaged")
    fetch_checkpoints(ObjectStore(RUN), here, RETRIES, replaces=True)
    assert list_missing_files(list_checkpoints(here.checkpoints)[0]) == []
    assert (here.checkpoint(10) / "__0_0.distcp").read_bytes() == own
    bucket.write(name, whole)
    fetch_checkpoints(ObjectStore(RUN), here, RETRIES, replaces=True)
    assert (here.checkpoint(10) / "__0_0.distcp").read_bytes() == whole
    assert [path.name for path in here.checkpoints.iterdir()] == ["step-00000010"]


def test_a_fetch_of_encoders_that_was_interrupted_is_completed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    directory = make_run(tmp_path / "run")
    directory.base.mkdir()
    for name in ("a.json", "b.json"):
        (directory.base / name).write_text(name)
    make_uploader(directory).upload()
    again, store = RunDirectory(tmp_path / "again"), ObjectStore(RUN)
    fetch_file = store.fetch_file

    def fail_at_second(name: str, path: Path) -> None:
        if name.endswith("b.json"):
            raise OSError("disk full")
        fetch_file(name, path)

    monkeypatch.setattr(store, "fetch_file", fail_at_second)
    with pytest.raises(OSError, match="disk full"):
        fetch_small_files(store, again, RETRIES)
    fetch(again.path)
    assert {path.name for path in again.base.iterdir()} == {"a.json", "b.json"}


def test_an_attempt_that_is_not_the_newest_one_is_told(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    directory.attempt(1).rank_log(0).write_text("a line")
    make_uploader(directory).upload_end()
    check_is_unfinished(ObjectStore(RUN), directory, 1, RETRIES)
    bucket.write("runs/run/attempt-1/outcome.json", b"{}")
    check_is_newest(ObjectStore(RUN), 1, RETRIES)
    with pytest.raises(LaterAttemptError, match="attempt 1 of the run has ended there already"):
        check_is_unfinished(ObjectStore(RUN), directory, 1, RETRIES)
    bucket.write("runs/run/attempt-12/logs/rank-0.log", b"a line")
    with pytest.raises(LaterAttemptError, match=r"attempt 12 .* this is attempt 2 \(valid: `dlrm resume s3://b"):
        check_is_newest(ObjectStore(RUN), 2, RETRIES)
    # The document of a later attempt replaces that of an earlier one.
    bucket.write("runs/run/spec.json", b"{}")
    assert fetch_small_files(ObjectStore(RUN), directory, RETRIES)
    assert directory.spec.read_bytes() == b"{}"


def test_files_that_do_not_change_are_read_once(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    directory.base.mkdir()
    (directory.base / "encoder").write_bytes(b"x")
    uploader = make_uploader(directory)
    uploader.upload()
    before = bucket.proxy.num_requests
    for _ in range(5):
        uploader.upload()
    assert bucket.proxy.num_requests == before
    (directory.base / "encoder").write_bytes(b"yy")
    uploader.upload()
    assert bucket.read("runs/run/base/encoder") == b"yy"


def test_a_node_that_waits_for_others_asks_ever_more_rarely(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    write_checkpoint(directory, 10)
    (directory.checkpoint(10) / "__1_0.distcp").unlink()
    uploader = make_uploader(directory, UploadPart(1, 0, is_shared=False))
    uploader.upload()
    before = bucket.proxy.num_requests
    for _ in range(20):
        uploader.upload()
    assert bucket.proxy.num_requests <= before + 4


def test_checkpoints_in_a_bucket_are_found_by_the_names_that_users_give_them(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    for step in (10, 20):
        write_checkpoint(directory, step)
    upload_all(make_uploader(directory))
    store = ObjectStore(RUN)
    assert find_remote_step(store, "newest", RETRIES) == 20
    assert find_remote_step(store, "step-10", RETRIES) == 10
    with pytest.raises(Exception, match=r"step-30 is no complete checkpoint .*valid: newest, step-00000020, step-00"):
        find_remote_step(store, "step-30", RETRIES)
