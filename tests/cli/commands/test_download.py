"""`dlrm download` against a service; completion in a real bash."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.filesize import decimal

from cli.commands.completion import complete_job_ids, complete_labels
from cli.commands.download import choose_names
from cli.local.errors import CommandError
from cli.local.run_store import fetch_model
from service.client import Artifact
from tests.bucket.server import Bucket
from tests.cli.conftest import Command
from tests.service.api import Api
from tests.service.databases import on_sqlite
from tests.service.files.runs import MODEL_FILES, fill_run, make_manifest
from tests.service.jobs.test_checkpoints_api import save_checkpoint
from tests.service.raw import get_key

pytestmark = on_sqlite


@pytest.fixture(autouse=True)
def _with_the_service(shared_api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLRM_URL", shared_api.url)
    monkeypatch.setenv("DLRM_API_KEY", get_key(shared_api.viewer.headers))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def job(shared_api: Api) -> dict[str, Any]:
    job = shared_api.submit(labels={"behaviour": "wait", "team": "ads"})
    fill_run(job)
    return job


def test_the_model_is_downloaded_to_a_directory_named_like_the_job(dlrm: Command, job: dict[str, Any]) -> None:
    ended = dlrm("download", job["id"])
    assert (ended.code, ended.out) == (0, f"{job['id']}/model\n")
    assert sorted(path.name for path in Path(job["id"], "model").iterdir()) == sorted(
        {name.split("/")[0] for name in MODEL_FILES}
    )
    again = dlrm("download", job["id"])
    assert (again.code, again.err) == (2, f"error: {job['id']}/model exists already (valid: --force, to replace it)\n")
    assert dlrm("download", job["id"], "--force").code == 0


def test_kinds_names_and_single_files_are_downloaded(dlrm: Command, job: dict[str, Any]) -> None:
    ended = dlrm("download", job["id"], "log", "checkpoint", "model/empty", "spec.json", "--to", "here", "--json")
    names = [
        "attempt-1/logs/launch.log",
        "attempt-1/logs/rank-0.log",
        "checkpoints/step-00000010",
        "model/empty",
        "spec.json",
    ]
    assert json.loads(ended.out) == {"job": job["id"], "paths": {name: f"here/{name}" for name in names}}
    assert all(Path("here", name).exists() for name in names)


def test_what_there_is_is_listed(dlrm: Command, job: dict[str, Any], shared_api: Api) -> None:
    lines = dlrm("download", job["id"], "--list").out.splitlines()
    assert lines[0].split() == ["name", "kind", "bytes", "changed"]
    assert lines[1].split()[:3] == ["model", "model", decimal(sum(map(len, MODEL_FILES.values()))).split()[0]]
    items = [json.loads(line) for line in dlrm("download", job["id"], "--list", "--json").out.splitlines()]
    assert [item["name"] for item in items[:2]] == ["model", "checkpoints/step-00000010"]
    empty = dlrm("download", shared_api.submit()["id"], "--list")
    assert (empty.code, empty.out, empty.err) == (0, "", "the job has left nothing yet\n")


def test_what_there_is_not_is_said_with_what_there_is(dlrm: Command, job: dict[str, Any], shared_api: Api) -> None:
    ended = dlrm("download", job["id"], "models")
    valid = "model, checkpoint, log, profile, outcome, document, or a name that --list shows"
    assert (ended.code, ended.err) == (2, f"error: WHAT: {job['id']} has no models (valid: {valid})\n")
    waiting = shared_api.submit()["id"]
    assert f"{waiting} has no model (valid: nothing yet" in dlrm("download", waiting).err
    assert dlrm("download", "job_1").err == "error: there is no job job_1\n"


def test_a_model_in_a_bucket_is_fetched_from_there_and_nothing_that_nobody_can_send(
    dlrm: Command, bucket: Bucket, tmp_path: Path
) -> None:
    content = b"w" * 1000
    bucket.write("runs/job/model/weights", content)
    bucket.write("runs/job/model/manifest.json", make_manifest({"weights": content}))
    bucket.write("runs/job/model/config.json", b"{}")
    listed = [
        Artifact(name="model", kind="model", is_directory=True, place="s3://bucket/runs/job/model"),
        Artifact(name="checkpoints/step-00000001", kind="checkpoint", is_directory=True, place="/runs/job/checkpoints"),
    ]
    assert choose_names(listed, ["model"], "job_1") == {"model": "s3://bucket/runs/job/model"}
    with pytest.raises(CommandError, match="where the service does not see it: /runs/job/checkpoints"):
        choose_names(listed, ["checkpoint"], "job_1")
    (tmp_path / "model").mkdir()
    fetch_model("s3://bucket/runs/job/model", tmp_path / "model")
    assert (tmp_path / "model" / "weights").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_directory_that_cannot_be_written_is_said(dlrm: Command, job: dict[str, Any]) -> None:
    Path("file").write_text("")
    ended = dlrm("download", job["id"], "--to", "file")
    assert (ended.code, ended.err) == (1, "error: file: File exists\n")


def test_a_shell_completes_what_the_service_knows(shared_api: Api, job: dict[str, Any]) -> None:
    save_checkpoint(job, 55, 1)
    assert (job["id"], f"{job['name']} QUEUED") in complete_job_ids("job_")
    assert complete_job_ids(job["id"][:-1] + "!") == []
    assert complete_labels("te") == ["team:"]
    assert complete_labels("team:") == ["team:ads"]


def test_a_shell_that_completes_without_a_service_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DLRM_URL", "http://127.0.0.1:1")
    assert complete_job_ids("") == []
    monkeypatch.delenv("DLRM_API_KEY")
    assert complete_labels("") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.slow
def test_bash_completes_commands_ids_artifacts_and_paths(job: dict[str, Any], tmp_path: Path) -> None:
    program = tmp_path / "dlrm"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path.cwd())!r})\nsys.argv[0] = 'dlrm'\n"
        "from cli.__main__ import main\nmain()\n"
    )
    program.chmod(0o755)
    (tmp_path / "clicks.csv").write_text("")
    script = """
        source <("$0" --show-completion bash)
        for line in "$@"; do
            read -ra COMP_WORDS <<< "$line"
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
            _dlrm_completion "$0"
            echo "${COMPREPLY[*]}"
        done
        complete -p dlrm
    """
    lines = ["dlrm downl", f"dlrm show {job['id'][:-2]}", f"dlrm download {job['id']} mod", "dlrm train clic"]
    ended = subprocess.run(["bash", "-c", script, program, *lines], capture_output=True, text=True, check=True)
    *completed, registered = ended.stdout.splitlines()
    assert completed == ["download", job["id"], "model", ""]
    # Where nothing is completed, bash completes paths.
    assert "-o default" in registered
