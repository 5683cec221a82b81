"""Jobs on pods of real processes, with addresses, limits of memory and read-only roots of their own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dlrm.record import Outcome, find_newest_checkpoint
from tests.e2e.pod_scene import PodScene, make_pod_prefix, serve_pods
from tests.kubernetes.played.behaviours import find_no_node, run_process
from tests.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pods")


@pytest.fixture(scope="module")
def scene(directory: Path) -> Iterator[PodScene]:
    with pytest.MonkeyPatch.context() as patch, serve_pods(directory, patch) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(scene: PodScene) -> str:
    """Id of a job on two pods that nothing has disturbed."""
    return run_undisturbed(scene, 2)


def run_undisturbed(scene: PodScene, num_nodes: int) -> str:
    job_id = scene.submit(num_nodes)
    job = scene.wait_for_end(job_id)
    assert (job["state"], job["reason"], job["num_attempts"]) == ("SUCCEEDED", "completed", 1), job["message"]
    return job_id


def check_shown(scene: PodScene, job_id: str, num_nodes: int, lost: range = range(0)) -> None:
    """Check that the service shows of a job what its run has left on the claim. lost: steps whose reports may lack."""
    job, run = scene.see(job_id), scene.get_run(job_id)
    outcome = Outcome.read(run.attempt(job["num_attempts"]).outcome)
    assert outcome is not None
    assert job["metrics"] == outcome.metrics
    steps = scene.list_steps(job_id)
    assert steps == [step for step in range(1, job["progress"]["num_steps"] + 1) if step in steps or step not in lost]
    newest = find_newest_checkpoint(run.checkpoints)
    assert newest is not None
    manifest = newest.read_manifest()
    shown = scene.api.viewer.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"][0]
    assert (shown["step"], shown["num_bytes"], shown["world_size"]) == (manifest.step, manifest.num_bytes, num_nodes)


def check_recovered(
    scene: PodScene, job_id: str, saved_step: int, undisturbed: str, *, may_lose_reports: bool = False
) -> dict[str, Any]:
    """Check that a job has gone on from a checkpoint, and has learned to the bit what an undisturbed one has; return
    its first attempt.

    saved_step: step of a checkpoint that the service knew. may_lose_reports: whether what was reported after it may
    have been lost with the pod that reports.
    """
    job = scene.wait_for_end(job_id)
    assert (job["state"], job["num_attempts"]) == ("SUCCEEDED", 2), job["message"]
    first, second = scene.list_attempts(job_id)
    lost = range(0)
    if may_lose_reports:
        assert second["start_step"] >= first["saved_step"] >= saved_step
        lost = range(saved_step, second["start_step"] + 1)
    else:
        assert second["start_step"] == first["saved_step"] >= saved_step
    check_shown(scene, job_id, 2, lost)
    model, expected = scene.read_model(job_id), scene.read_model(undisturbed)
    assert model.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(model[name], expected[name])] == []
    found, wanted = job["metrics"], scene.see(undisturbed)["metrics"]
    assert {**found, "samples_per_second": None} == {**wanted, "samples_per_second": None}
    return first


def check_same_but_for_rounding(scene: PodScene, job_id: str, undisturbed: str) -> None:
    model, expected = scene.read_model(job_id), scene.read_model(undisturbed)
    assert model.keys() == expected.keys()
    for name, values in model.items():
        torch.testing.assert_close(values, expected[name], rtol=0, atol=1e-3)


def wait_for_next_steps(scene: PodScene, job_id: str) -> None:
    """Wait until the second attempt of a job has trained."""

    def has_trained() -> bool:
        attempts, job = scene.list_attempts(job_id), scene.see(job_id)
        assert job["state"] not in ("FAILED", "CANCELLED"), job["message"]
        step = job["progress"]["step"] or 0
        return len(attempts) == 2 and attempts[1]["start_step"] is not None and step > attempts[1]["start_step"]

    wait_until(has_trained)


def test_a_job_on_two_pods_is_shown_as_its_claim_has_it(scene: PodScene, undisturbed: str) -> None:
    check_shown(scene, undisturbed, 2)


def test_a_job_with_no_more_memory_than_its_plan_asks_for_is_not_killed(scene: PodScene, undisturbed: str) -> None:
    job_id = scene.submit(2, memory_bytes=scene.plan_memory_bytes(2))
    job = scene.wait_for_end(job_id)
    assert (job["state"], job["num_attempts"]) == ("SUCCEEDED", 1), job["message"]
    check_same_but_for_rounding(scene, job_id, undisturbed)


def test_a_job_on_three_pods_learns_what_two_learn(scene: PodScene, undisturbed: str) -> None:
    job_id = run_undisturbed(scene, 3)
    check_shown(scene, job_id, 3)
    check_same_but_for_rounding(scene, job_id, undisturbed)


@pytest.mark.parametrize("index", [0, 1])
def test_a_job_one_of_whose_pods_is_killed_goes_on_and_learns_the_same(
    scene: PodScene, undisturbed: str, index: int
) -> None:
    job_id = scene.submit(2)
    saved_step = scene.wait_for_checkpoint(job_id)
    scene.find_container(job_id, index).kill()
    wait_for_next_steps(scene, job_id)
    # Pod 0 takes with it the reports that it has not sent.
    first = check_recovered(scene, job_id, saved_step, undisturbed, may_lose_reports=index == 0)
    assert first["reason"] == "worker_crashed"
    assert "was killed by SIGKILL" in first["message"]


def test_a_job_whose_pods_are_asked_to_end_goes_on_and_learns_the_same(scene: PodScene, undisturbed: str) -> None:
    job_id = scene.submit(2)
    saved_step = scene.wait_for_checkpoint(job_id)
    scene.api.submitter.post(f"/v1/jobs/{job_id}/pause")
    scene.api.wait_for(job_id, "PAUSED")
    (first,) = scene.list_attempts(job_id)
    assert (first["state"], first["reason"], first["exit_code"]) == ("STOPPED", "user_paused", 75)
    scene.api.submitter.post(f"/v1/jobs/{job_id}/resume")
    check_recovered(scene, job_id, saved_step, undisturbed)


@pytest.mark.soak
def test_a_job_that_has_lost_a_node_goes_on_with_fewer(scene: PodScene, undisturbed: str) -> None:
    job_id = scene.submit({"min": 2, "max": 3})
    scene.wait_for_checkpoint(job_id)
    lost = scene.get_node(job_id, 2)
    scene.cluster.kubelet.on_start(2, find_no_node("0/3 nodes are available: 2 Insufficient cpu."), times=1)
    scene.cluster.lose_node(lost)
    scene.find_container(job_id, 2).kill()
    wait_for_next_steps(scene, job_id)
    # The pod that has waited for a node now finds one, too late for this attempt.
    scene.cluster.nodes.start(lost)
    scene.cluster.kubelet.change(make_pod_prefix(job_id, 2, attempt=2), run_process(scene.runtime))
    job = scene.wait_for_end(job_id)
    assert (job["state"], job["num_attempts"]) == ("SUCCEEDED", 2), job["message"]
    first, second = scene.list_attempts(job_id)
    assert first["reason"] in ("peer_silent", "node_lost")
    assert second["start_step"] == first["saved_step"]
    check_shown(scene, job_id, 2)
    check_same_but_for_rounding(scene, job_id, undisturbed)
