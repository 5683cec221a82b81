from dlrm.config import parse_job, resolve
from service.jobs.batch_stages import list_batch_stages
from tests.made_reports import make_step
from tests.service.api import Api
from tests.service.jobs.test_checkpoints_api import save_checkpoint
from tests.service.reports.attempts import begin_next_attempt, push_reports

SCHEDULE = [{"until_fraction": 0.25, "global_size": 1024}, {"until_fraction": 0.5, "global_size": 4096}]


def list_stages(
    batch: dict[str, object], present: int | None, decided: dict[str, object] | None = None
) -> list[tuple[int, float | None, bool]]:
    """List size, end and whether it is current of each stage. decided: batch of a run that has decided what is open."""
    moments = {"every": 1} if "growth" in batch else None
    document = {"data": {"format": "synthetic"}, "batch": batch, "resources": {"workers_per_node": 2}}
    resolved = resolve(parse_job({**document, "moments": moments})).model_dump(mode="json")
    if decided is not None:
        resolved["job"]["batch"] |= decided
        resolved["derived"].append({"name": "batch.global_size", "value": decided["global_size"]})
    stages = list_batch_stages({"batch": {"global_size": "auto", **batch}}, resolved, present)
    return [(stage.global_size, stage.until_fraction, stage.is_current) for stage in stages]


def test_the_stages_of_a_schedule_are_its_sizes_and_then_the_last_one() -> None:
    batch = {"global_size": 16_384, "schedule": SCHEDULE}
    assert list_stages(batch, 4096) == [(1024, 0.25, False), (4096, 0.5, True), (16_384, None, False)]
    assert not any(is_current for *_, is_current in list_stages(batch, None))


def test_the_stages_of_a_schedule_that_is_left_open_are_those_that_were_decided() -> None:
    batch = {"schedule": "auto"}
    stages = list_stages({**batch, "global_size": 4096}, 512)
    # From an eighth at a fifth of the samples, four sizes for each doubling.
    assert stages[::4] == [(512, 0.2, True), (1024, 0.3333, False), (2048, 0.4667, False), (4096, None, False)]
    # Also where another version decided otherwise.
    decided = {"global_size": 16_384, "schedule": SCHEDULE}
    assert list_stages(batch, 4096, decided) == [(1024, 0.25, False), (4096, 0.5, True), (16_384, None, False)]
    # The rows are not known yet, or the batch is too small to grow.
    assert list_stages(batch, None) == []
    assert list_stages({**batch, "global_size": 2}, 2) == []


def test_stages_of_a_batch_that_follows_the_noise_end_at_the_present() -> None:
    batch = {"global_size": 5000, "growth": {"start_size": 1024}}
    assert list_stages(batch, None) == [(1024, None, False)]
    assert list_stages(batch, 2048) == [(1024, None, False), (2048, None, True)]
    sizes = [(1024, None, False), (2048, None, False), (4096, None, False), (5000, None, True)]
    assert list_stages(batch, 5000) == sizes


def test_a_batch_of_one_size_has_no_stages() -> None:
    assert list_stages({"global_size": "auto"}, 4096) == []
    # As earlier versions kept it, which knew no schedule.
    batch = {"batch": {"global_size": 64}}
    assert list_batch_stages(batch, {"job": batch, "derived": []}, 64) == []


def test_a_job_tells_its_present_batch_and_the_share_of_samples_at_its_checkpoints(api: Api) -> None:
    batch = {"global_size": 64, "schedule": [{"until_fraction": 0.5, "global_size": 32}]}
    submitted = api.submit(batch=batch)
    attempt = begin_next_attempt(api, submitted["id"])
    save_checkpoint(submitted, step=2, num_bytes=1)
    path = f"/v1/jobs/{submitted['id']}"
    (by_steps,) = api.viewer.get(f"{path}/checkpoints").json()["items"]
    assert by_steps["done_fraction"] == 0.02
    changes = {"num_run_samples": 1000 * by_steps["num_samples"], "global_size": 32}
    push_reports(api, attempt, make_step(2).model_copy(update=changes))
    job = api.viewer.get(path).json()
    assert job["progress"]["global_size"] == 32
    assert job["batch_stages"] == [
        {"global_size": 32, "until_fraction": 0.5, "is_current": True},
        {"global_size": 64, "until_fraction": None, "is_current": False},
    ]
    (by_samples,) = api.viewer.get(f"{path}/checkpoints").json()["items"]
    assert by_samples["done_fraction"] == 0.001
