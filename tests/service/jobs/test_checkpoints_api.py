from pathlib import Path
from typing import Any

from dlrm.record import COMPLETE, CheckpointManifest, FileRecord, RunDirectory
from tests.service.api import Api


def save_checkpoint(job: dict[str, Any], step: int, num_bytes: int) -> Path:
    path = RunDirectory(Path(job["run_directory"])).checkpoint(step)
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"w" * num_bytes)
    CheckpointManifest(
        step=step,
        num_steps=100,
        num_samples=64 * step,
        time=1_800_000_000.0 + step,
        world_size=2,
        identity={},
        data_checksum=None,
        files={"weights": FileRecord.from_file(path / "weights")},
    ).write(path)
    return path


def test_complete_checkpoints_are_listed_newest_first(api: Api) -> None:
    job = api.submit()
    assert api.viewer.get(f"/v1/jobs/{job['id']}/checkpoints").json() == {"items": [], "next_cursor": None}
    paths = {step: save_checkpoint(job, step, num_bytes=10 * step) for step in (5, 25)}
    unfinished = save_checkpoint(job, 30, num_bytes=1)
    (unfinished / COMPLETE).unlink()
    (save_checkpoint(job, 40, num_bytes=1) / COMPLETE).write_text("{}")
    items = api.viewer.get(f"/v1/jobs/{job['id']}/checkpoints").json()["items"]
    assert items == [
        {
            "step": step,
            "num_samples": 64 * step,
            "done_fraction": step / 100,
            "time": f"2027-01-15T08:00:{step:02}Z",
            "num_bytes": 10 * step,
            "world_size": 2,
            "path": str(paths[step]),
        }
        for step in (25, 5)
    ]
