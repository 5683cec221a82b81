"""Downloads of artifacts: they go on where they were cut off, are checked, and appear once they are whole."""

import hashlib
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from dlrm.record import CheckpointDirectory, CheckpointFaultError, FileRecord, OpenRecord, get_checkpoint_step
from service.client.errors import ServiceUnreachableError
from service.client.patience import Patience
from service.client.transport import Transport
from service.schemas import Artifact, Page

Result = TypeVar("Result")

OnProgress = Callable[[int, int], None]
"""Function of the bytes that are there, and of the bytes in all."""
MODEL_MANIFEST = "manifest.json"
PARTIAL_CONTENT = 206
MAX_VAIN_TRIES = 5
"""Answers in a row that may end before their first byte."""


class DownloadError(Exception):
    """Error of a download that cannot be completed; the message names the file, and what is wrong with it."""


class _ModelManifest(OpenRecord):
    """Content of the file of a model that lists the others."""

    files: dict[str, FileRecord]


@dataclass(frozen=True)
class Downloader:
    """Downloads of one job from a service."""

    transport: Transport
    job_id: str
    patience: Patience
    on_progress: OnProgress

    async def download(self, name: str, directory: Path, *, overwrite: bool) -> Path:
        """Download an artifact, or a file of one, to `directory/name`, and return that path.

        What an earlier call has left unfinished is continued. overwrite: replace what is there. Raises DownloadError,
        ServiceError, ServiceAwayError, and OSError if the files cannot be written.
        """
        target = directory / _check_name(name)
        if target.exists() and not overwrite:
            raise DownloadError(f"{target} exists already")
        files = await self._list_files(name)
        tag = await self._get_tag(name)
        part = _name_part(target, f"{self.job_id} {tag}")
        part.parent.mkdir(parents=True, exist_ok=True)
        _remove(*(old for old in part.parent.glob(f".{target.name}.*.part") if old != part))
        is_directory = [file.name for file in files] != [name]
        total, num_bytes_done = sum(file.num_bytes or 0 for file in files), 0
        for file in files:
            path = part / PurePosixPath(file.name).relative_to(name) if is_directory else part
            await self._fetch(file, path, num_bytes_done, total)
            num_bytes_done += file.num_bytes or 0
        if is_directory:
            part.mkdir(exist_ok=True)
            if await self._get_tag(name) != tag:
                raise self._make_change_error(name)
            _verify(part, name)
        put_in_place(target, part)
        return target

    async def _list_files(self, name: str) -> list[Artifact]:
        path, query = f"/v1/jobs/{self.job_id}/artifacts", {"below": name}
        return (await self._repeat(lambda: self.transport.get(Page[Artifact], path, query))).items

    async def _get_tag(self, name: str) -> str:
        return await self._repeat(lambda: self.transport.get_tag(self._find_path(name)))

    def _find_path(self, name: str) -> str:
        return f"/v1/jobs/{self.job_id}/artifacts/{quote(_check_name(name).as_posix())}"

    async def _fetch(self, file: Artifact, path: Path, num_bytes_before: int, total: int) -> None:
        """Append to the file `path` what it lacks of a file of the service, over as many requests as it takes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        num_bytes, num_vain_tries = file.num_bytes or 0, 0
        with path.open("ab") as written:
            if written.tell() > num_bytes:
                written.truncate(0)
            while (start := written.seek(0, 2)) < num_bytes:
                headers = {"Range": f"bytes={start}-{num_bytes - 1}", "Accept-Encoding": "identity"}
                answer = await self._repeat(partial(self.transport.open, self._find_path(file.name), headers))
                try:
                    async with self.transport.read(answer) as parts:
                        if answer.status_code != PARTIAL_CONTENT:
                            raise self._make_change_error(file.name)
                        async for part in parts:
                            written.write(part)
                            self.on_progress(num_bytes_before + written.tell(), total)
                except ServiceUnreachableError:
                    num_vain_tries = 0 if written.tell() > start else num_vain_tries + 1
                    if num_vain_tries == MAX_VAIN_TRIES:
                        raise

    def _repeat(self, request: Callable[[], Awaitable[Result]]) -> Awaitable[Result]:
        return self.patience.repeat(request, self.transport.sleep)

    def _make_change_error(self, name: str) -> DownloadError:
        return DownloadError(f"{name} of {self.job_id} was changed meanwhile: download it again")


def _check_name(name: str) -> PurePosixPath:
    """Return a name as a relative path. Raises DownloadError if it leads anywhere else."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise DownloadError(f"{name!r} is no name of an artifact (valid: model, as listed by `dlrm download --list`)")
    return PurePosixPath(*parts)


def _name_part(target: Path, content: str) -> Path:
    """Return the path of what is downloaded until it is whole, a name of its own for each content."""
    return target.with_name(f".{target.name}.{hashlib.sha256(content.encode()).hexdigest()[:12]}.part")


def _verify(directory: Path, name: str) -> None:
    """Raise DownloadError if a file is not as its model or checkpoint says. It is removed, to be downloaded anew."""
    step = get_checkpoint_step(Path(name))
    try:
        if step is not None:
            files = CheckpointDirectory(directory, step).read_manifest().files
        elif (manifest := directory / MODEL_MANIFEST).exists():
            files = _ModelManifest.model_validate_json(manifest.read_bytes()).files
        else:
            return
    except (CheckpointFaultError, ValidationError) as error:
        raise DownloadError(f"{name} is damaged: {' '.join(str(error).split())}") from None
    for file, record in files.items():
        path = directory / _check_name(file)
        if not path.is_file() or FileRecord.from_file(path) != record:
            _remove(path)
            raise DownloadError(f"{name}/{file} is damaged: its checksum differs; download it again")


def put_in_place(target: Path, part: Path) -> None:
    """Rename `part`, which is whole now, to `target`, in place of what was there."""
    old = target.with_name(f".{target.name}.old.part")
    if target.is_dir():
        target.rename(old)
    part.replace(target)
    _remove(old)


def _remove(*paths: Path) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
