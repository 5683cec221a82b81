"""`dlrm sweep --service`: trials as jobs of a real service, trained by real ranks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cli.commands.service_access import make_patience
from cli.demo.service_process import run_service
from cli.experiments.sweep.document import read_sweep
from cli.experiments.sweep.plan import Plan
from cli.experiments.trials.jobs import JobRunner
from cli.experiments.trials.results import read_results
from dlrm.record import EXIT_STOPPED
from service.client import Client
from tests.patience import wait_until

DOCUMENT = """
seeds = [0, 1]
parallel = 2
[job]
labels = { team = "ads" }
data = { format = "synthetic", synthetic = { num_rows = 8_000, num_ids = 50 } }
model = { architecture = "dlrm", bottom_mlp = [8, 4], top_mlp = [8, 1] }
batch = { global_size = 512 }
run = { epochs = 1 }
resources = { workers_per_node = 1, memory = "1GiB" }
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with run_service(tmp_path_factory.mktemp("work") / ".dlrm", {"DLRM_NUM_CORES": "2"}) as client:
        yield client


@pytest.mark.slow
def test_an_interrupted_sweep_takes_the_jobs_that_it_has_submitted(service: Client, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(DOCUMENT)
    key = service.create_key("sweeper", "submitter").key
    environment = {**os.environ, "DLRM_API_KEY": str(key)}
    command = [sys.executable, "-m", "cli", "sweep", "jobs.toml", "-o", "out", "--service", service.url]
    sweeping = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(service.jobs(label="sweep:jobs"))) == 2)
    os.kill(sweeping.pid, signal.SIGINT)
    _, said = sweeping.communicate()
    assert (sweeping.returncode, "the jobs that were submitted go on" in said) == (EXIT_STOPPED, True), said
    assert f"{service.url}/compare?label=sweep:jobs" in said

    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    results = read_results(tmp_path / "out" / "results.jsonl")
    jobs = list(service.jobs(label="sweep:jobs"))
    assert sorted(result.key for result in results) == sorted(job.labels["sweep-trial"] for job in jobs)
    assert {(job.labels["team"], job.state) for job in jobs} == {("ads", "SUCCEEDED")}
    by_key = {job.labels["sweep-trial"]: service.job(job.id) for job in jobs}
    for result in results:
        metrics = by_key[result.key].metrics
        assert (result.outcome, result.metrics["auc"]) == ("done", metrics["auc"])
        assert (result.curve[-1].auc, result.curve[-1].num_samples) == (metrics["auc"], result.num_samples)
        assert result.decided["model.embedding_dim"] == 4
        assert result.scores is not None
        assert len(np.load(tmp_path / "out" / result.scores.logits)) == result.scores.num_rows
    assert len({result.scores.checksum for result in results if result.scores}) == 1
    assert [*{result.seed for result in results}] == [0, 1]


@pytest.mark.slow
def test_a_trial_whose_older_failed_job_was_deleted_gets_a_new_job(service: Client, tmp_path: Path) -> None:
    sweep = tmp_path / "again.toml"
    sweep.write_text(DOCUMENT.replace("num_rows = 8_000", "num_rows = 9_000"))
    trial = Plan(read_sweep(sweep)).list_due({})[0]
    runner = JobRunner(service, make_patience(10.0, print), "again", tmp_path, 1)
    ended: list[str] = []
    for _ in range(2):
        runner.start(trial, "")
        job = next(iter(service.jobs(label="sweep:again")))
        service.cancel(job.id)
        wait_until(lambda job_id=job.id: service.job(job_id).has_ended)
        ended.append(job.id)
    assert len({*ended}) == 2
    service.delete(ended[0])
    runner.start(trial, "")
    job = next(iter(service.jobs(label="sweep:again")))
    assert job.id not in ended
    service.cancel(job.id)
