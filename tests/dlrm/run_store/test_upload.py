"""Uploads of a run directory, and what is fetched from them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dlrm.checkpoint.keep import list_not_uploaded, remove_old_checkpoints
from dlrm.record import COMPLETE, UPLOADED, EndReason, Outcome, RunDirectory, list_checkpoints
from dlrm.run_store.fetch import Retries, fetch_checkpoints, fetch_model, fetch_small_files, find_remote_step
from dlrm.run_store.lease import LeaseLostError
from dlrm.run_store.objects import ObjectStore, RequestError
from dlrm.run_store.upload import Uploader, UploadPart
from tests.bucket.server import Bucket
from tests.dlrm.run_store.runs import RUN, make_run, write_checkpoint, write_manifest

RETRIES = Retries(lambda _: None)
STEP = "runs/run/checkpoints/step-000000"


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
    assert fetch_small_files(ObjectStore(RUN), directory, RETRIES)
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
    assert bucket.read(f"{STEP}10/__0_0.distcp") == b"other"
    assert bucket.read(f"{STEP}10/{COMPLETE}") == (path / COMPLETE).read_bytes()


def test_old_checkpoints_go_from_the_bucket_as_they_went_here_but_not_before_a_newer_one_is_there(
    bucket: Bucket, tmp_path: Path
):
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
    assert uploaders[1].list_left().names == []
    uploaders[0].upload()
    assert uploaders[0].list_left().names == []
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
    bucket.write(f"{STEP}10/__1_0.distcp", b"x" * 1000)
    bucket.write(f"{STEP}10/parts/node-1.json", json.dumps({"__1_0.distcp": "0" * 64}).encode())
    uploader = make_uploader(node, UploadPart(1, 0, is_shared=False))
    uploader.upload()
    uploader.upload()
    assert f"{STEP}10/{COMPLETE}" not in bucket.list_names()


def test_a_damaged_checkpoint_in_the_bucket_is_passed_over(bucket: Bucket, tmp_path: Path):
    directory = make_run(tmp_path / "run")
    for step in (10, 20):
        write_checkpoint(directory, step)
    upload_all(make_uploader(directory))
    bucket.write(f"{STEP}20/__0_0.distcp", b"y" * 1000)
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
