"""List of what runs have left, and the content of each part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from service.access.principal import Principal
from service.access.visibility import get_visible_job
from service.database import Database
from service.files.artifacts import FoundArtifact, FoundFile, find_artifact, list_artifacts
from service.files.contents import FileContent, StoredLogContent, TarContent
from service.http.downloads import Content
from service.http.problems import ProblemError, not_found
from service.parts import depend_on
from service.schemas import Artifact
from service.store.models import Job
from service.store.run_facts import RunFacts


@dataclass(frozen=True)
class Download:
    """Content to be sent, with the name of the file that it becomes."""

    content: Content
    file_name: str
    media_type: str = "application/octet-stream"
    """Type that is not compressed on the way, as a text would be: the bytes must fit their tag."""


class ArtifactService:
    """Reader of what runs have left. Raises ProblemError if the sender may know of no such job."""

    def __init__(self, database: Database, facts: RunFacts) -> None:
        self._database = database
        self._facts = facts

    def list_all(self, job_id: str, principal: Principal, below: str | None = None) -> list[Artifact]:
        """List the artifacts of a job; with `below`, the files of an artifact, or of a directory in it, instead.

        Raises ProblemError if there is no such artifact on the disk of the service.
        """
        job = self._get_job(job_id, principal)
        if self._facts.shares_files(job):
            seen = list_artifacts(Path(job.run_directory)) if below is None else []
            listed = [_describe(found.kind, found.name, found.files, found.is_directory) for found in seen]
        else:
            listed = [
                item for item in self._list_unseen(job) if below is None or (item.name == below and not item.place)
            ]
        if below is None or listed:
            return listed
        found = self._find_seen(job, below)
        files = [file for file in found.files if f"{file.name}/".startswith(f"{below}/")]
        if not files and below != found.name:
            raise not_found("file", f"{below} of {job.id}")
        return [_describe(found.kind, file.name, [file]) for file in files]

    def open(self, job_id: str, principal: Principal, name: str) -> Download:
        """Open an artifact, or a file of one, to be sent.

        Raises ProblemError if there is none, or the service does not see it.
        """
        job = self._get_job(job_id, principal)
        if (log := self._facts.list_stored_logs(job).get(name)) is not None:
            return Download(StoredLogContent(log, self._database), _name_file(job, name))
        found = self._find_seen(job, name)
        if found.is_directory and found.name == name:
            return Download(TarContent(found.files, name), f"{_name_file(job, name)}.tar", "application/x-tar")
        file = next((file for file in found.files if file.name == name), None)
        if file is None:
            raise not_found("file", f"{name} of {job.id}")
        return Download(FileContent(file), _name_file(job, name))

    def _get_job(self, job_id: str, principal: Principal) -> Job:
        with self._database.read() as session:
            return get_visible_job(session, job_id, principal)

    def _find_seen(self, job: Job, name: str) -> FoundArtifact:
        """Find an artifact, or the one that has a file. Raises ProblemError if the service sees no such artifact."""
        if self._facts.shares_files(job):
            if (found := find_artifact(Path(job.run_directory), name)) is not None:
                return found
        else:
            for artifact in self._list_unseen(job):
                if artifact.place is not None and f"{name}/".startswith(f"{artifact.name}/"):
                    detail = f"{artifact.name} of {job.id} is where the service does not see it: {artifact.place}"
                    raise ProblemError("files-elsewhere", detail, extensions={"place": artifact.place})
        raise not_found("artifact", f"{name} of {job.id}")

    def _list_unseen(self, job: Job) -> list[Artifact]:
        """List what a run has reported of files that the service does not see, and the logs in the database."""
        artifacts: list[Artifact] = []
        if (model := self._facts.find_model(job)) is not None:
            artifacts.append(Artifact(name="model", kind="model", is_directory=True, place=model))
        for found in self._facts.list_checkpoints(job):
            name = f"checkpoints/{Path(found.path).name}"
            artifacts.append(
                Artifact(
                    name=name,
                    kind="checkpoint",
                    is_directory=True,
                    num_bytes=found.num_bytes,
                    modified_at=found.time,
                    place=found.path,
                )
            )
        logs = self._facts.list_stored_logs(job)
        return artifacts + [Artifact(name=name, kind="log", num_bytes=log.num_bytes) for name, log in logs.items()]


Artifacts = Annotated[ArtifactService, depend_on(ArtifactService)]
"""Parameter type of an endpoint that needs the service."""


def _describe(kind: str, name: str, files: Sequence[FoundFile], is_directory: bool = False) -> Artifact:
    last = max((file.mtime_ns for file in files), default=None)
    return Artifact(
        name=name,
        kind=kind,
        is_directory=is_directory,
        num_bytes=sum(file.num_bytes for file in files),
        modified_at=None if last is None else datetime.fromtimestamp(last / 1e9, UTC),
    )


def _name_file(job: Job, name: str) -> str:
    return f"{job.id}-{name.replace('/', '-')}"
