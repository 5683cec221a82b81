"""The commands against a real service whose trainer fails at once."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.demo.service_process import run_service
from cli.experiments.trials.results import read_results
from service.client import Client

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
DOCUMENT: dict[str, Any] = {
    "name": "first",
    "labels": {"team": "ads"},
    "max_restarts": 0,
    "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
    "batch": {"global_size": 64},
    "resources": {"memory": "1GiB"},
}


@pytest.fixture(scope="module")
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("work") / ".dlrm"
    with run_service(directory, SETTINGS):
        yield directory


@pytest.fixture(autouse=True)
def _below_the_state_directory(monkeypatch: pytest.MonkeyPatch, state_directory: Path) -> None:
    for name in ("DLRM_URL", "DLRM_API_KEY", "DLRM_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(state_directory.parent)


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


def test_submit_prints_the_id_alone_on_stdout(dlrm: Callable[..., Any], job_file: str) -> None:
    ended = dlrm("submit", job_file)
    assert ended.code == 0
    with Client() as client:
        assert client.job(ended.out.strip()).name == "first"


def test_a_followed_job_that_fails_shows_why_and_ends_in_exit_code_1(dlrm: Callable[..., Any], job_file: str) -> None:
    ended = dlrm("submit", job_file, "--follow")
    assert ended.code == 1
    assert "worker_crashed" in ended.err


def test_show_and_logs_of_an_ended_job(dlrm: Callable[..., Any], job_file: str) -> None:
    job_id = dlrm("submit", job_file, "--follow").out.strip()
    shown = dlrm("show", job_id).out
    assert "FAILED" in shown
    assert "world_size" in shown
    assert json.loads(dlrm("show", job_id, "--json").out)["spec"]["batch"]["global_size"] == 64
    assert dlrm("logs", job_id, "--rank", "launch", "--follow").code == 0


def test_a_restarted_job_has_an_id_of_its_own_and_says_where_it_comes_from(
    dlrm: Callable[..., Any], job_file: str
) -> None:
    old = dlrm("submit", job_file, "--follow").out.strip()
    new = dlrm("restart", old).out.strip()
    assert new != old
    assert ["restarted", "from", old] in [line.split() for line in dlrm("show", new).out.splitlines()]


def test_jobs_are_listed_for_people_and_for_programs(dlrm: Callable[..., Any], job_file: str) -> None:
    ids = [dlrm("submit", job_file).out.strip() for _ in range(2)]
    assert ids[1] in dlrm("jobs").out
    lines = dlrm("jobs", "--label", "team:ads", "--limit", "2", "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids[::-1]


def test_jobs_are_found_by_owner_time_and_text(dlrm: Callable[..., Any], job_file: str) -> None:
    job_id = dlrm("submit", job_file).out.strip()

    def find(*options: str) -> bool:
        ended = dlrm("jobs", "--json", "--limit", "1000", *options)
        assert ended.code == 0, ended.err
        return job_id in {json.loads(line)["id"] for line in ended.out.splitlines()}

    assert find("--owner", "admin", "--since", "1h", "--search", job_id[-6:].lower())
    assert not find("--owner", "nobody")
    assert not find("--until", "1h")
    assert not find("--since", "2999-01-01")
    assert not find("--search", "nothing like it")
    refused = dlrm("jobs", "--since", "yesterday")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_a_listed_job_is_one_line_whatever_its_name(
    dlrm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({**DOCUMENT, "name": "long" * 12, "labels": {"length": "long"}}))
    job_id = dlrm("submit", str(path), "--follow").out.strip()
    monkeypatch.setenv("COLUMNS", "80")
    piped = dlrm("jobs", "--label", "length:long").out.splitlines()
    assert [line.split() for line in piped[1:]] == [[job_id, "long" * 12, "FAILED", "worker_crashed"]]
    monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
    monkeypatch.setenv("TERM", "dumb")  # of 80 columns, without colours
    at_terminal = dlrm("jobs", "--label", "length:long").out.splitlines()
    assert len(at_terminal) == 2
    assert at_terminal[1].startswith(f"{job_id} long")
    assert "…" in at_terminal[1]
    assert len(at_terminal[1]) <= 80


def test_the_log_of_one_attempt(dlrm: Callable[..., Any], job_file: str) -> None:
    job_id = dlrm("submit", job_file, "--follow").out.strip()
    assert dlrm("logs", job_id, "--rank", "launch", "--attempt", "1").code == 0
    unknown = dlrm("logs", job_id, "--attempt", "7")
    assert unknown.code == 2
    assert "attempt 7" in unknown.err


def test_what_the_service_refuses_is_one_line_and_exit_code_2(dlrm: Callable[..., Any], job_file: str) -> None:
    unknown = dlrm("show", "job_nowhere")
    assert (unknown.code, unknown.err.count("\n")) == (2, 1)
    assert "job_nowhere" in unknown.err
    job_id = dlrm("submit", job_file, "--follow").out.strip()
    refused = dlrm("cancel", job_id)
    assert refused.code == 2
    assert "already ended" in refused.err


@pytest.mark.parametrize("job_id", ["", "..", "job/1"])
def test_what_is_no_id_of_a_job_is_said_to_be_none(dlrm: Callable[..., Any], job_id: str) -> None:
    ended = dlrm("resume", job_id)
    assert ended.code == 2
    assert f"JOB_ID: {job_id!r} is not a job id" in ended.err


def test_a_second_service_on_the_same_state_is_refused(state_directory: Path) -> None:
    serve = [sys.executable, "-m", "cli", "serve", "--port", "0", "--state-directory", state_directory]
    ended = subprocess.run(serve, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: another service")


def test_a_wrong_setting_is_named(dlrm: Callable[..., Any], tmp_path: Path) -> None:
    ended = dlrm("serve", "--port", "99999", "--state-directory", str(tmp_path))
    assert ended.code == 2
    assert ended.err.startswith("error: DLRM_PORT: ")
    assert ended.err.count("\n") == 1


def test_data_beside_the_document_that_no_data_root_has_is_named_in_the_refusal(
    dlrm: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "beside.tsv").write_text("1")
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"data": {"train": ["beside.tsv", "nowhere.tsv"]}}))
    ended = dlrm("submit", str(path))
    assert ended.code == 2
    first, second = ended.err.strip().splitlines()
    assert "data.train.0: 'beside.tsv' is neither a file nor a directory with files: looked for /" in first
    assert f"there is {tmp_path}/beside.tsv, but a relative path counts from the data roots of the service" in first
    assert "there is" not in second


def test_a_trial_whose_job_failed_is_submitted_anew_by_the_next_sweep(
    dlrm: Callable[..., Any], tmp_path: Path, job_file: str
) -> None:
    document, output = tmp_path / "failing.toml", tmp_path / "out"
    document.write_text(f'job = "{Path(job_file).name}"\n')
    for number in (1, 2):
        ended = dlrm("sweep", str(document), "--output", str(output), "--service", "auto")
        assert ended.code == 0
        assert "1 trial failed; the same command tries again" in ended.out
        results = read_results(output / "results.jsonl")
        assert [(result.outcome, result.reason) for result in results] == [("failed", "worker_crashed")] * number
        assert len({result.key for result in results}) == 1
        with Client() as client:
            jobs = list(client.jobs(label=f"sweep-trial:{results[0].key}"))
        assert [(job.name, job.labels["sweep"], job.labels["team"]) for job in jobs] == [
            ("failing", "failing", "ads")
        ] * number


def test_a_service_that_is_not_there_ends_a_sweep_before_anything_is_written(
    dlrm: Callable[..., Any], tmp_path: Path, job_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "far.toml"
    document.write_text(f'job = "{Path(job_file).name}"\n')
    monkeypatch.chdir(tmp_path)
    ended = dlrm("sweep", str(document), "--service", "auto")
    assert (ended.code, "no service found" in ended.err) == (1, True)
    assert not list(tmp_path.glob("runs/*/results.jsonl"))
