"""Growing sets of files: the rows depend on the files alone, whenever they come, and however often a run stops."""

import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dlrm.config import ConfigError, DataConfig, parse_job
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.follow.ledger import Ledger
from dlrm.data.follow.open import open_followed
from dlrm.data.follow.prepare import Follower
from dlrm.data.packed.open import open_encoders, open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.data.prepare.unfinished import Unfinished
from dlrm.data.raw.data_file import DataFile

WINDOW = 1024
SIZES = [2500, 300, 400, 3100, 1024, 700]
"""Rows of the files: the second and third together fill no window alone, and the fifth is a window."""
SCHEMA: dict[str, Any] = {
    "label": "y",
    "weight": "w",
    "dense": [{"name": "x"}],
    "categorical": [
        {"name": "a"},
        {"name": "b", "type": "string", "multi_hot": True, "separator": "|"},
        {"name": "c", "type": "string"},
    ],
}


def write_day(path: Path, day: int) -> None:
    random = np.random.default_rng(day)
    lines = ["y,w,x,a,b,c"]
    for _ in range(SIZES[day]):
        several = "|".join(f"t{value}" for value in random.integers(0, 30, random.integers(0, 4)) + 20 * day)
        one, label = random.integers(0, 80) + 30 * day, random.integers(0, 2)
        lines.append(f"{label},{random.random():.3f},{random.normal():.4f},{one},{several},c{random.integers(0, 9)}")
    path.write_text("\n".join(lines) + "\n")


def make_config(directory: Path, **follow: Any) -> DataConfig:
    return DataConfig.model_validate(
        {
            "train": [str(directory / "day_*.csv")],
            "format": "csv",
            "window_rows": WINDOW,
            "follow": {"settle_seconds": 0.0, "look_every_seconds": 0.1, "idle_minutes": 1e-5, **follow},
            "schema": SCHEMA,
            "vocabulary": {"dynamic": {"max_rows": 90}, "columns": {"c": {"hash_size": 16}}},
        }
    )


def follow(
    tmp_path: Path, batches: Sequence[Sequence[int]], *, is_complete: bool = True, **settings: Any
) -> tuple[Ledger, list[ProgressEvent | NoteEvent]]:
    """Let files come in batches, each looked at by a process of its own."""
    (tmp_path / "live").mkdir(exist_ok=True)
    events: list[ProgressEvent | NoteEvent] = []
    follower = Follower(make_config(tmp_path / "live", **settings), None, tmp_path / "prepared", None, 2, events.append)
    ledger = Ledger()
    for days in batches:
        for day in days:
            write_day(tmp_path / "live" / f"day_{day}.csv", day)
        ledger = follower.prepare_next(batch_rows=512, num_trained=-1)
    if is_complete:
        ledger = follower.prepare_next(batch_rows=512, num_trained=sum(SIZES))
    return ledger, events


def open_rows(tmp_path: Path, ledger: Ledger) -> Dataset:
    return open_followed(tmp_path / "prepared" / ledger.pieces[-1].name, WINDOW, 1)


def test_pieces_depend_on_the_files_and_not_on_when_they_come(tmp_path: Path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    at_once, _ = follow(tmp_path / "one", [range(6)])
    one_by_one, _ = follow(tmp_path / "two", [[day] for day in range(6)])
    assert one_by_one.pieces[0].num_rows == 2048
    assert [piece.checksum for piece in one_by_one.pieces] == [piece.checksum for piece in at_once.pieces]
    # 452 rows of the first file wait for the second, and both for the third.
    assert [piece.num_files for piece in at_once.pieces] == [1, 3, 4, 5, 6]
    assert [piece.is_whole for piece in at_once.pieces] == [True, True, True, True, False]
    assert at_once.num_rows == sum(SIZES)


def test_rows_are_those_of_the_same_files_in_order_of_time(tmp_path: Path):
    (tmp_path / "one").mkdir()
    ledger, _ = follow(tmp_path / "one", [[0, 1, 2], [3, 4], [5]])
    joined = open_rows(tmp_path / "one", ledger)
    plain = make_config(tmp_path / "one" / "live").model_copy(
        update={"follow": None, "split": "tail", "eval": ["other"]}
    )
    files = [DataFile.from_path(tmp_path / "one" / "live" / f"day_{day}.csv") for day in range(6)]
    prepare(plain, files, files[:1], tmp_path / "whole", num_threads=1, on_event=lambda _: None)
    whole = open_packed(tmp_path / "whole")
    numbers = np.random.default_rng(0).permutation(sum(SIZES))
    found, expected = joined.train.read(numbers), whole.train.read(numbers)
    np.testing.assert_array_equal(found.labels, expected.labels)
    np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(found.ids.values, expected.ids.values)
    np.testing.assert_array_equal(found.ids.lengths, expected.ids.lengths)
    for feature in (0, 1):
        np.testing.assert_array_equal(joined.reused[feature], whole.reused[feature])
        assert len(joined.reused[feature]) > 5
    # Dense features are scaled by the rows of the first file.
    values = [line.split(",")[2] for line in files[0].open().read().decode().splitlines()[1:2049]]
    first = np.array(values, dtype=np.float64)
    again = joined.train.read(np.arange(2048)).dense[:, 0]
    np.testing.assert_allclose(again, (first - first.mean()) / first.std(), rtol=1e-4, atol=1e-5)


def test_a_file_that_comes_late_is_read_next_and_one_that_grows_is_not_read_again(tmp_path: Path):
    ledger, _ = follow(tmp_path, [[0], [3]], is_complete=False)
    with (tmp_path / "live" / "day_0.csv").open("a") as file:
        file.write("1,1,0.5,3,t1,c1\n")
    ledger, events = follow(tmp_path, [[1, 2]])
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3", "day_1", "day_2"]
    notes = [event for event in events if isinstance(event, NoteEvent)]
    assert [note.name for note in notes if note.name != "files_read"] == ["file_changed", "file_late", "file_late"]
    assert "day_0.csv has changed since it was read: it is not read again" in notes[0].message
    assert ledger.num_rows == sum(SIZES[day] for day in (0, 1, 2, 3))


def test_a_file_waits_until_it_has_settled_and_so_do_files_after_it(tmp_path: Path):
    (tmp_path / "live").mkdir()
    for day in (0, 3, 4):
        write_day(tmp_path / "live" / f"day_{day}.csv", day)
    later = time.time() + 3600
    os.utime(tmp_path / "live" / "day_3.csv", (later, later))
    (tmp_path / "live" / "day_5.csv").touch()
    ledger, events = follow(tmp_path, [[]], is_complete=False)
    assert [Path(file.name).stem for file in ledger.files] == ["day_0"]
    assert "not complete yet" not in str(events)
    by_time, _ = follow(tmp_path, [[]], is_complete=False, by="time")
    assert [Path(file.name).stem for file in by_time.files] == ["day_0", "day_4"]


def test_a_bad_file_is_waited_for_and_named_at_the_end(tmp_path: Path):
    before, _ = follow(tmp_path, [[0]], is_complete=False)
    bad = tmp_path / "live" / "day_1.csv"
    bad.write_text("y,w,x,a,b,c\n" + "1,1,none,3,t1,c1\n" * WINDOW)
    waiting, events = follow(tmp_path, [[3]], is_complete=False)
    assert waiting == before
    refused = [event for event in events if isinstance(event, NoteEvent)]
    assert [event.name for event in refused] == ["file_refused"]
    assert "day_1.csv, line 2" in refused[0].message
    with pytest.raises(DataError, match=r"day_1\.csv, line 2"):
        follow(tmp_path, [])
    write_day(bad, 1)
    after, _ = follow(tmp_path, [])
    assert [Path(file.name).stem for file in after.files] == ["day_0", "day_1", "day_3"]
    assert after.pieces[0] == before.pieces[0]


def test_a_bad_file_is_reported_once_however_often_it_is_looked_at(tmp_path: Path):
    (tmp_path / "live").mkdir()
    write_day(tmp_path / "live" / "day_0.csv", 0)
    (tmp_path / "live" / "day_1.csv").write_text("y,w,x,a,b,c\n1,1,none,3,t1,c1\n")
    events: list[ProgressEvent | NoteEvent] = []
    follower = Follower(make_config(tmp_path / "live"), None, tmp_path / "prepared", None, 1, events.append)
    for _ in range(3):
        follower.prepare_next(batch_rows=512, num_trained=-1)
    assert [event.name for event in events if isinstance(event, NoteEvent)] == ["files_read", "file_refused"]


def test_a_first_file_that_is_bad_is_an_error_at_once(tmp_path: Path):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "day_0.csv").write_text("y,w,x,a,b,c\n1,1,none,3,t1,c1\n")
    with pytest.raises(DataError, match=r"day_0\.csv, line 2"):
        follow(tmp_path, [[]])


def test_a_kill_before_a_piece_is_known_loses_no_file_and_reads_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    follow(tmp_path, [[0]], is_complete=False)
    for directory in ("finished", "renamed"):
        with monkeypatch.context() as patched:
            if directory == "finished":
                patched.setattr(Unfinished, "finish", lambda *_: pytest.fail("killed"))
            else:
                patched.setattr(Ledger, "add", lambda *_, **__: pytest.fail("killed"))
            with pytest.raises(pytest.fail.Exception):
                follow(tmp_path, [[3]], is_complete=False)
    ledger, _ = follow(tmp_path, [[1, 2, 4]])
    assert [Path(file.name).stem for file in ledger.files] == ["day_0", "day_3", "day_1", "day_2", "day_4"]
    assert ledger.num_rows == sum(SIZES[day] for day in (0, 1, 2, 3, 4))
    assert sorted(path.name for path in (tmp_path / "prepared").iterdir() if path.is_dir()) == [
        piece.name for piece in ledger.pieces
    ]


def test_new_rows_are_measured_with_the_ids_from_before_them(tmp_path: Path):
    ledger, _ = follow(tmp_path, [range(6)])
    data = open_rows(tmp_path, ledger)
    files = [tmp_path / "live" / f"day_{day}.csv" for day in range(6)]
    lines = [line for file in files for line in file.read_text().splitlines()[1:]]
    for before, piece in pairwise(ledger.pieces):
        encoders = open_encoders(tmp_path / "prepared" / before.name)
        numbers = np.arange(piece.start_row, piece.end_row)
        values = pl.Series([lines[row].split(",")[3] for row in numbers])
        distinct = values.unique().sort()
        expected = dict(zip(distinct.to_list(), encoders.vocabularies[0].encode(distinct).tolist(), strict=True))
        measured = data.evaluation.read(numbers).ids.values[: len(numbers)]
        assert measured.tolist() == [expected[value] for value in values.to_list()]
        trained = data.train.read(numbers).ids.values[: len(numbers)]
        assert (measured != trained).any()


def test_rows_from_before_the_oldest_checkpoint_are_removed_and_asked_for_in_vain(tmp_path: Path):
    ledger, _ = follow(tmp_path, [range(6)])
    ledger.remove_rows_before(ledger.pieces[2].start_row, tmp_path / "prepared")
    rows = open_rows(tmp_path, ledger).train
    assert rows.num_rows == ledger.num_rows
    assert rows.read(np.array([ledger.pieces[2].start_row])).num_rows == 1
    with pytest.raises(DataError, match=r"data\.follow: rows 3,072 to .* are there, and others are asked for"):
        rows.read(np.array([5, 4000]))


def test_an_end_without_any_file_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match=r"data\.train: no rows came"):
        follow(tmp_path, [[]])


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        ({"vocabulary": {}}, {}, "data.vocabulary: the ids of a are counted over all rows, and data.follow never has"),
        ({"vocabulary": {"dynamic": {"ttl_rows": 9}}}, {}, "data.vocabulary.dynamic.max_rows: the table of a would"),
        ({"order": "shuffled"}, {}, 'data.order: data.follow trains on files as they come (valid: "time")'),
        ({"eval": ["b.csv"]}, {}, "data.eval: is of a run whose end is known, and data.follow has none (valid: null)"),
        ({}, {"dense_optimizer": {"schedule": {"decay": "cosine"}}}, "dense_optimizer.schedule.decay: is of a run"),
        ({}, {"averaging": {}}, "averaging: is of a run whose end is known, and data.follow has none (valid: null)"),
        ({}, {"run": {"target_auc": 0.8}}, "run.target_auc: is of a run whose end is known"),
        (
            {},
            {"preset": "large_batch"},
            "preset: is of a run whose end is known, and data.follow has none",
        ),
        ({}, {"resources": {"nodes": 2}}, "resources.nodes: data.follow prepares its files on one machine"),
        ({}, {"run": {"epochs": 2}}, "run.epochs: is for shuffled rows, and data.order is time (valid: 1.0)"),
    ],
)
def test_what_needs_an_end_or_all_rows_is_refused(data: dict[str, Any], more: dict[str, Any], said: str):
    document = make_config(Path("live")).model_dump(mode="json", by_alias=True)
    plain = {"data": document, "batch": {"global_size": 512}}
    job = parse_job(plain)
    assert (job.data.order, job.dense_optimizer.schedule.decay, job.run.keep_model) == ("time", "constant", "last")
    with pytest.raises(ConfigError) as caught:
        parse_job({**plain, "data": {**document, **data}, **more})
    assert said in str(caught.value)
