"""Run directories with what a run leaves, and what nobody may have."""

import hashlib
import json
from pathlib import Path
from typing import Any

from dlrm.record import CheckpointManifest, FileRecord, RunDirectory
from tests.service.api import Api

SECRET = "dlrm-secret"


def make_manifest(files: dict[str, bytes]) -> bytes:
    """Make the file of a model that lists the others."""
    records = {
        name: {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }
    return json.dumps({"format": 1, "files": records}).encode()


_WITH_CHECKSUMS = {
    "weights.safetensors": bytes(range(256)) * 2000,
    "encoders/grüezi.parquet": b"e" * 700,
    "empty": b"",
}
MODEL_FILES = _WITH_CHECKSUMS | {"manifest.json": make_manifest(_WITH_CHECKSUMS)}


def fill_run(job: dict[str, Any]) -> RunDirectory:
    """Fill the directory of a job's run: a model, checkpoints, logs and profiles, and private and unfinished files."""
    run = RunDirectory(Path(job["run_directory"]))
    for name, content in MODEL_FILES.items():
        write(run.model / name, content)
    for step, is_complete in {10: True, 20: False}.items():
        write(run.checkpoint(step) / "weights", b"w" * step)
        write(run.checkpoint(step) / ".metadata", b"m")
        if is_complete:
            write_manifest(run.checkpoint(step), step)
    attempt = run.attempt(1)
    write(attempt.rank_log(0), b"one\ntwo\n")
    write(attempt.launch_log, b"begins\n")
    write(attempt.outcome, b"{}")
    write(attempt.profile.figures(0), b"{}")
    write(run.spec, b"{}")
    for private in (attempt.push_target, attempt.nodes_token, attempt.spool / "rank-0.events.jsonl", run.run_store):
        write(private, SECRET.encode())
    for unfinished in (run.model / ".x", run.model / "a.part", run.path / "model.part" / "b", run.prepared / "rows"):
        write(unfinished, SECRET.encode())
    return run


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_manifest(directory: Path, step: int) -> None:
    files = {path.name: FileRecord.from_file(path) for path in directory.iterdir()}
    CheckpointManifest(
        step=step,
        num_steps=100,
        num_samples=64 * step,
        time=1.8e9,
        world_size=1,
        identity={},
        data_checksum=None,
        files=files,
    ).write(directory)


def list_names(api: Api, job_id: str, **query: str) -> list[str]:
    answer = api.viewer.get(f"/v1/jobs/{job_id}/artifacts", params=query)
    assert answer.status_code == 200, answer.text
    return [item["name"] for item in answer.json()["items"]]
