"""Prepared data that jobs share."""

import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from dlrm.config import CategoricalColumn, DenseColumn, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.packed import open as digest
from dlrm.data.packed.layout import compute_rows_checksum, read_meta
from dlrm.data.prepare import cache as cache_module
from dlrm.data.prepare import fingerprint
from dlrm.data.prepare.cache import find_or_prepare, find_prepared
from dlrm.data.prepare.fingerprint import get_library_versions
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from tests.dlrm.data.prepare.table_strategies import EventRecorder, MadeTable, data_config

SCHEMA = SchemaConfig(dense=[DenseColumn(name="d")], categorical=[CategoricalColumn(name="c")])
TABLE = MadeTable(SCHEMA, {"label": [0, 1] * 50, "d": [float(i) for i in range(100)], "c": ["a", "b"] * 50})


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A file that nobody has changed lately."""
    path = TABLE.write(tmp_path / "rows", row_group_size=10)
    os.utime(path, (1_000_000_000, 1_000_000_000))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def entry_of(file: Path, cache: Path, recorder: EventRecorder | None = None, **fields: object) -> Path:
    config = data_config(SCHEMA, [file], **fields)
    return find_or_prepare(
        config, None, cache, base_directory=Path(), num_threads=2, on_event=recorder or EventRecorder()
    )


def was_read(recorder: EventRecorder) -> bool:
    return any(each.message.startswith("reading") for each in recorder.all)


def test_the_second_job_finds_what_the_first_has_prepared(rows: Path, cache: Path) -> None:
    first, second = EventRecorder(), EventRecorder()
    entry = entry_of(rows, cache, first)
    assert read_meta(entry).splits["train"].num_rows > 0
    assert entry_of(rows, cache, second) == entry
    assert was_read(first)
    assert not was_read(second)


def test_what_was_prepared_before_is_found_without_reading_a_file(
    rows: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_SETTLED_NS", -1)
    config = data_config(SCHEMA, [rows])
    assert find_prepared(config, None, cache, base_directory=Path()) is None
    entry = entry_of(rows, cache)
    assert find_prepared(config, None, cache, base_directory=Path()) == entry
    os.utime(rows, (1_000_000_001, 1_000_000_001))
    assert find_prepared(config, None, cache, base_directory=Path()) is None


def test_names_directories_and_dates_of_files_do_not_matter(rows: Path, cache: Path, tmp_path: Path) -> None:
    entry = entry_of(rows, cache)
    rows.touch()
    (tmp_path / "elsewhere").mkdir()
    moved = rows.rename(tmp_path / "elsewhere" / "renamed")
    copied = Path(shutil.copy(moved, tmp_path / "copied"))
    for file in (moved, copied):
        recorder = EventRecorder()
        assert entry_of(file, cache, recorder) == entry
        assert not was_read(recorder)


def test_other_contents_and_other_settings_have_entries_of_their_own(rows: Path, cache: Path) -> None:
    entries = [
        entry_of(rows, cache),
        entry_of(rows, cache, eval_fraction=0.2),
        entry_of(rows, cache, split="tail"),
        entry_of(rows, cache, vocabulary={"min_count": 1}),
        entry_of(rows, cache, max_bad_fraction=0.1),
        entry_of(rows, cache, eval=[str(TABLE.rows(0, 50).write(cache / "others"))]),
    ]
    TABLE.rows(0, 90).write(rows)
    entries.append(entry_of(rows, cache))
    assert len(set(entries)) == len(entries)


def test_a_share_that_evaluation_files_make_useless_does_not_matter(rows: Path, cache: Path) -> None:
    evaluation = [str(TABLE.rows(0, 50).write(rows.with_name("others")))]
    assert entry_of(rows, cache, eval=evaluation) == entry_of(rows, cache, eval=evaluation, eval_fraction=0.3)


def test_a_file_that_was_changed_a_moment_ago_is_hashed_again(rows: Path, cache: Path) -> None:
    rows.touch()
    status = rows.stat()
    before = entry_of(rows, cache)
    content = rows.read_bytes()
    flipped = TABLE.columns | {"label": [1, 0] * 50}
    MadeTable(SCHEMA, flipped).write(rows, row_group_size=10)
    assert len(rows.read_bytes()) == len(content)
    os.utime(rows, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert entry_of(rows, cache) != before


@pytest.fixture
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as unchanged for long at once."""
    monkeypatch.setattr(cache_module, "_SETTLED_NS", 0)


@pytest.mark.usefixtures("_settled")
def test_a_file_that_was_changed_in_place_and_dated_back_is_read_again(rows: Path, cache: Path) -> None:
    before, size = entry_of(rows, cache), rows.stat().st_size
    MadeTable(SCHEMA, TABLE.columns | {"label": [1, 0] * 50}).write(rows, row_group_size=10)
    os.utime(rows, (1_000_000_000, 1_000_000_000))
    assert rows.stat().st_size == size
    assert entry_of(rows, cache) != before


def test_other_versions_of_the_libraries_have_entries_of_their_own(
    rows: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = entry_of(rows, cache)
    monkeypatch.setattr(fingerprint, "get_library_versions", lambda: {**get_library_versions(), "pyarrow": "0.1"})
    after = entry_of(rows, cache)
    assert after != before
    assert compute_rows_checksum(read_meta(after)) == compute_rows_checksum(read_meta(before))


def test_parts_of_an_intermediate_version_of_a_file_are_not_reused(rows: Path, cache: Path, tmp_path: Path) -> None:
    content = rows.read_bytes()
    columns = TABLE.columns | {"label": [1, 0] * 30 + [7] + [1] * 39}

    def on_event(event: ProgressEvent | NoteEvent) -> None:
        if event.message.startswith("reading"):
            MadeTable(SCHEMA, columns).write(rows, row_group_size=10)
        if isinstance(event, NoteEvent):
            raise KeyboardInterrupt

    config = data_config(SCHEMA, [rows], max_bad_fraction=0.5)
    with pytest.raises(KeyboardInterrupt):
        find_or_prepare(config, None, cache, base_directory=Path(), num_threads=1, on_event=on_event)
    assert list(cache.glob("*.part/stage/*.arrow"))
    rows.write_bytes(content)
    entry = entry_of(rows, cache, max_bad_fraction=0.5)
    assert read_meta(entry) == read_meta(entry_of(rows, tmp_path / "undisturbed", max_bad_fraction=0.5))


def test_the_hashing_of_one_file_reports_progress(rows: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_REPORT_SECONDS", 0.0)
    monkeypatch.setattr(digest, "_PIECE_BYTES", 100)
    recorder = EventRecorder()
    entry_of(rows, cache, recorder)
    checking = [each.message for each in recorder.all if each.message.startswith("checking the files: ")]
    assert len(set(checking)) > 5
    assert checking[-1] == "checking the files: 100%"


@pytest.mark.usefixtures("_settled")
def test_unchanged_files_are_not_hashed_again(rows: Path, cache: Path) -> None:
    entry = entry_of(rows, cache)
    (remembered,) = (cache / "digests").iterdir()
    remembered.write_text("0" * 64)
    assert entry_of(rows, cache) != entry


@pytest.mark.parametrize("is_prepared_meanwhile", [True, False])
def test_a_second_job_waits_for_the_first(rows: Path, cache: Path, tmp_path: Path, is_prepared_meanwhile: bool) -> None:
    entry = entry_of(rows, cache)
    aside = entry.rename(tmp_path / "aside")
    recorder = EventRecorder()
    found: list[Path] = []
    waits = threading.Event()

    def on_event(event: ProgressEvent | NoteEvent) -> None:
        recorder(event)
        if event.message.startswith("waiting for another process"):
            waits.set()

    def second() -> None:
        config = data_config(SCHEMA, [rows])
        found.append(find_or_prepare(config, None, cache, base_directory=Path(), num_threads=2, on_event=on_event))

    with (cache / f"{entry.name}.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(timeout=60)
        assert not found
        if is_prepared_meanwhile:
            aside.rename(entry)
    thread.join(timeout=60)
    assert found == [entry]
    assert was_read(recorder) != is_prepared_meanwhile


def test_an_interrupted_entry_is_resumed_although_the_file_was_moved(rows: Path, cache: Path, tmp_path: Path) -> None:
    def interrupt(event: ProgressEvent | NoteEvent) -> None:
        if event.message.startswith("writing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_or_prepare(
            data_config(SCHEMA, [rows]), None, cache, base_directory=Path(), num_threads=2, on_event=interrupt
        )
    (part,) = cache.glob("*.part")
    staged = {path.name: path.stat().st_mtime_ns for path in (part / "stage").iterdir()}
    assert staged
    entry = entry_of(rows.rename(tmp_path / "moved"), cache)
    assert entry.name == part.name.removesuffix(".part")
    assert not part.exists()


@pytest.mark.parametrize("name", ["meta.json", "train/labels.bin", "encoders/vocabulary-0.parquet"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_an_entry_with_a_deleted_file_is_prepared_again(rows: Path, cache: Path, name: str, is_cut: bool) -> None:
    entry = entry_of(rows, cache)
    before = (entry / name).read_bytes()
    if is_cut:
        os.truncate(entry / name, len(before) - 1)
    else:
        (entry / name).unlink()
    assert entry_of(rows, cache) == entry
    assert (entry / name).read_bytes() == before


def test_bad_data_leaves_no_entry(tmp_path: Path, cache: Path) -> None:
    bad = MadeTable(SCHEMA, TABLE.columns | {"label": [2] * 100}).write(tmp_path / "bad")
    with pytest.raises(DataError, match=f"{bad}, line 1, label"):
        entry_of(bad, cache)
    assert {path.suffix for path in cache.iterdir() if path.name != "digests"} == {".lock"}


def test_files_outside_the_roots_are_refused_though_they_were_prepared_before(rows: Path, cache: Path) -> None:
    entry_of(rows, cache)
    config = data_config(SCHEMA, [rows])
    with pytest.raises(DataError, match="outside the data roots"):
        find_or_prepare(config, [str(cache)], cache, base_directory=Path(), num_threads=1, on_event=EventRecorder())


def test_a_file_to_train_on_cannot_be_measured_on(rows: Path, cache: Path) -> None:
    (cache.parent / "link").symlink_to(rows)
    with pytest.raises(DataError, match=rf"{rows}, data\.eval: is also in data\.train"):
        entry_of(rows, cache, eval=[str(cache.parent / "link")])


def test_a_copy_of_a_training_file_is_refused_for_the_evaluation(rows: Path, cache: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(rows, tmp_path / "copy"))
    with pytest.raises(DataError, match=f"has the rows of {rows}, which is in data.train .valid: other files"):
        entry_of(rows, cache, eval=[str(copy)])
