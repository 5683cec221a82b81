"""Backup and restoration: a running job is found again, and what would lose something is refused."""

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from service.backup.manifest import BackupError, Manifest
from service.backup.postgresql import _find_program
from service.backup.service import back_up, restore
from service.database import Database
from service.lock import AlreadyServingError, lock_state
from service.settings import Settings
from tests.patience import wait_until
from tests.service.api import Api, make_document, serve_api
from tests.service.databases import dump_rows, on_both_databases, on_sqlite
from tests.service.postgres import IS_INSTALLED
from tests.service.service_process import find_launch_processes


def wipe(settings: Settings) -> None:
    """Lose the database, as by a disk that is broken."""
    if settings.database_url.startswith("sqlite"):
        file = settings.state_directory / "service.sqlite3"
        # Its log is left, as it may be.
        file.unlink()
        file.with_name(f"{file.name}-wal").write_bytes(b"left")
    else:
        execute(settings, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


def execute(settings: Settings, *statements: str) -> None:
    with closing(Database(settings.database_url)) as database, database.write() as session:
        for statement in statements:
            session.execute(text(statement))


def read_rows(settings: Settings) -> str:
    with closing(Database(settings.database_url)) as database:
        return dump_rows(database)


def submit(api: Api) -> dict[str, Any]:
    """Submit a job that trains until it is told to finish, and return it once it has trained a step."""
    job = api.submit(labels={"behaviour": "succeed_when_told"})
    wait_until(lambda: api.viewer.get(f"/v1/jobs/{job['id']}").json()["progress"]["step"] == 1)
    return job


def finish(api: Api, job: dict[str, Any]) -> dict[str, Any]:
    """Tell a job to finish, and return it once it has succeeded."""
    Path(job["run_directory"], "go").touch()
    return api.wait_for(job["id"], "SUCCEEDED")


def list_steps(api: Api, job: dict[str, Any]) -> list[int]:
    items = api.viewer.get(f"/v1/jobs/{job['id']}/metrics", params={"kind": "step"}).json()["items"]
    return [item["step"] for item in items]


def test_running_jobs_are_found_again_in_a_restored_database(settings: Settings, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    with serve_api(settings, runs_control_loop=True) as api:
        running, ending = submit(api), submit(api)
        back_up(api.services.settings, target)
        # What comes after the backup: one job ends, another begins.
        finish(api, ending)
        later = submit(api)
        steps = list_steps(api, ending)
    wipe(settings)
    restore(settings, target, force=False)
    # The next service makes keys of the same names.
    execute(settings, "DELETE FROM api_keys")
    with serve_api(settings, runs_control_loop=True) as api:
        assert {job["id"] for job in api.admin.get("/v1/jobs").json()["items"]} == {running["id"], ending["id"]}
        ended = api.wait_for(ending["id"], "SUCCEEDED")
        assert (ended["num_attempts"], list_steps(api, ending)) == (1, steps)
        # The process of a job that the database does not know is killed; its files stay.
        runs = settings.runs_directory
        wait_until(lambda: [find_job_id(process) for process in find_launch_processes(runs)] == [running["id"]])
        assert Path(later["run_directory"]).is_dir()
        ended = finish(api, running)
        assert (ended["num_attempts"], list_steps(api, running)) == (1, steps)


def find_job_id(process: psutil.Process) -> str:
    """Return the job that a launch process works for."""
    return next(Path(part).name for part in process.cmdline() if Path(part).name.startswith("job_"))


@on_both_databases
def test_a_backup_has_the_rows_of_one_moment_while_jobs_are_submitted(live_api: Api, tmp_path: Path) -> None:
    stop = threading.Event()

    def submit_many() -> None:
        while not stop.is_set():
            live_api.submit(priority=-1)

    writer = threading.Thread(target=submit_many)
    writer.start()
    settings, target = live_api.services.settings, tmp_path / "backup"
    wait_until(lambda: len(live_api.admin.get("/v1/jobs").json()["items"]) > 3)
    manifest = back_up(settings, target)
    stop.set()
    writer.join()
    assert manifest == Manifest.read(target)
    other = settings.model_copy(update={"state_directory": tmp_path / "other"})
    if live_api.services.database.is_sqlite:
        other = other.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'other.sqlite3'}"})
        restore(other, target, force=False)
        count = "SELECT count(*) FROM jobs UNION ALL SELECT count(*) FROM events WHERE to_state = 'QUEUED'"
        with closing(Database(other.database_url)) as database, database.read() as session:
            assert session.scalars(text(count)).all() == [manifest.num_jobs, manifest.num_jobs]
    else:
        assert manifest.num_jobs > 0


@on_both_databases
def test_a_restored_database_is_the_one_that_was_saved(api: Api, settings: Settings, tmp_path: Path) -> None:
    for _ in range(3):
        api.submit()
    before = read_rows(settings)
    back_up(settings, tmp_path / "backup")
    api.submit()
    api.services.database.close()
    aside = restore(settings, tmp_path / "backup", force=True).aside
    assert read_rows(settings) == before
    assert aside is not None
    # Numbers that the database makes go on.
    api.submit()
    place = f"{aside}.jobs" if not api.services.database.is_sqlite else "jobs"
    url = settings.database_url if not api.services.database.is_sqlite else f"sqlite:///{aside}"
    with closing(Database(url)) as kept, kept.read() as session:
        assert session.execute(text(f"SELECT count(*) FROM {place}")).scalar_one() == 4


@on_both_databases
@pytest.mark.parametrize("is_copy", [False, True])
def test_a_copy_of_a_service_acts_only_once_it_is_told_to(
    api: Api, settings: Settings, tmp_path: Path, is_copy: bool
) -> None:
    schedule = {"name": "nightly", "cron": "0 2 * * *", "document": make_document()}
    assert api.submitter.post("/v1/schedules", json=schedule).status_code == 201
    assert api.submitter.post("/v1/webhooks", json={"url": "https://hooks.example.com"}).status_code == 201
    back_up(settings, tmp_path / "backup")
    api.services.database.close()
    restored = restore(settings, tmp_path / "backup", force=True, is_copy=is_copy)
    assert (restored.num_schedules, restored.num_webhooks) == ((0, 0) if is_copy else (1, 1))
    [webhook] = api.submitter.get("/v1/webhooks").json()["items"]
    assert webhook["stopped_because"] == ("the database was restored as a copy" if is_copy else None)


@on_both_databases
def test_a_database_that_is_there_is_not_replaced_unless_forced(api: Api, settings: Settings, tmp_path: Path) -> None:
    back_up(settings, tmp_path / "backup")
    api.submit()
    before = read_rows(settings)
    with pytest.raises(BackupError, match=r"already.*--force moves"):
        restore(settings, tmp_path / "backup", force=False)
    assert read_rows(settings) == before


@on_both_databases
def test_nothing_is_restored_under_a_running_service(settings: Settings, tmp_path: Path) -> None:
    with ExitStack() as stack:
        if settings.database_url.startswith("sqlite"):
            stack.enter_context(lock_state(settings))
        api = stack.enter_context(serve_api(settings, runs_control_loop=True))
        wait_until(lambda: api.services.leadership.is_held)
        back_up(settings, tmp_path / "backup")
        before = api.submit()["id"]
        with pytest.raises((BackupError, AlreadyServingError), match="is using"):
            restore(settings, tmp_path / "backup", force=True)
        assert api.viewer.get(f"/v1/jobs/{before}").status_code == 200


def damage_file(target: Path) -> None:
    (file,) = target.glob("service.*")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def lose(pattern: str) -> Callable[[Path], None]:
    """Return what removes the file of this pattern from a backup."""
    return lambda target: next(target.glob(pattern)).unlink()


def change_manifest(**changes: str) -> Callable[[Path], None]:
    """Return what changes fields of the manifest of a backup."""

    def change(target: Path) -> None:
        file = target / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(damage_file, "is damaged: its size or checksum", marks=on_both_databases),
        (lose("service.*"), "not complete"),
        (lose("manifest.json"), "is no backup"),
        (lambda target: target.joinpath("manifest.json").write_text("{"), "is damaged, or of a later version"),
        (change_manifest(revision="9999"), "a later version of this program"),
        (change_manifest(file="../../etc/passwd"), "file: String should match"),
    ],
)
def test_what_is_not_a_whole_backup_of_this_version_changes_nothing(
    api: Api, settings: Settings, tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    back_up(settings, tmp_path / "backup")
    before = read_rows(settings)
    spoil(tmp_path / "backup")
    with pytest.raises(BackupError, match=message):
        restore(settings, tmp_path / "backup", force=True)
    assert read_rows(settings) == before


@on_both_databases
def test_a_restoration_that_fails_leaves_the_database_that_was_there(
    api: Api, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit()
    back_up(settings, tmp_path / "backup")
    before = read_rows(settings)
    api.services.database.close()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    if api.services.database.is_sqlite:
        monkeypatch.setattr("service.backup.sqlite.shutil.copyfile", fail)
    else:
        file = tmp_path / "backup" / "service.pgdump"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        monkeypatch.setattr("service.backup.service.Manifest.read", read_unchecked)
    with pytest.raises(BackupError, match=r"No space left|pg_restore failed"):
        restore(settings, tmp_path / "backup", force=True)
    assert read_rows(settings) == before


def read_unchecked(target: Path) -> Manifest:
    return Manifest.model_validate_json((target / "manifest.json").read_bytes())


def test_a_backup_overwrites_nothing_and_one_that_fails_leaves_nothing(
    api: Api, settings: Settings, tmp_path: Path
) -> None:
    target = tmp_path / "backups" / "today"
    with pytest.raises(BackupError, match="cannot write to"):
        back_up(settings, target)
    target.mkdir(parents=True)
    back_up(settings, target)
    with pytest.raises(BackupError, match="exists already"):
        back_up(settings, target)
    missing = settings.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'missing.sqlite3'}"})
    with pytest.raises(BackupError, match="there is no database"):
        back_up(missing, target.with_name("tomorrow"))
    assert [path.name for path in target.parent.iterdir()] == ["today"]
    assert {path.stat().st_mode & 0o077 for path in target.iterdir()} == {0}


@pytest.mark.skipif(not IS_INSTALLED, reason="PostgreSQL is not installed: apt-get install postgresql")
def test_programs_of_another_version_than_the_server_are_refused() -> None:
    with pytest.raises(BackupError, match=r"needs pg_dump of PostgreSQL 7, .*is of version \d+.*postgresql-client-7"):
        _find_program("pg_dump", 7)


@on_sqlite
def test_a_backup_of_the_other_kind_of_database_is_refused(api: Api, settings: Settings, tmp_path: Path) -> None:
    back_up(settings, tmp_path / "backup")
    other = settings.model_copy(update={"database_url": "postgresql+psycopg://me:secret@localhost/x"})
    with pytest.raises(BackupError, match="is of sqlite") as error:
        restore(other, tmp_path / "backup", force=True)
    assert "secret" not in str(error.value)
