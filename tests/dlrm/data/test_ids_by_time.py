"""Ids that are forgotten by the times of the rows: against the rule in plain Python, in one log and in several."""

import statistics
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlrm.config import ConfigError, DataConfig, DynamicIdsConfig, SchemaConfig, parse_job
from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import DynamicVocabulary
from dlrm.data.encode.window_clock import WindowClock
from dlrm.data.errors import DataError
from dlrm.data.follow.open import open_followed
from dlrm.data.follow.prepare import Follower
from dlrm.data.packed.layout import ENCODERS
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.data.raw.data_file import DataFile
from tests.dlrm.data.test_dynamic_ids import PlainMap

WINDOW, DAY = 1024, 86_400
FORM = "%d/%m/%Y %H:%M:%S"
TTL_DAYS = 2.5
RULE = {"admit_after": 2, "ttl_days": TTL_DAYS, "max_rows": 120}
START = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
WITHOUT = {"label": "y", "categorical": [{"name": "a"}]}
DAYS = [0, 0.5, 1, 1.5, 4, 3.7, 3.9, 4.5, 9, 9.2, None, 9.5, 11.9, 12, 12.2, 16]
"""Day of each window, and those that come late; one has no times."""


@dataclass
class MapByTime(PlainMap):
    """The rule: a window's time is the median of its rows' times, or an earlier window's if that is later."""

    times: list[float] = field(default_factory=list[float])

    def is_old(self, last: int, window: int) -> bool:
        return last <= window - 2 and self.times[window] - self.times[last] >= TTL_DAYS * DAY


def draw_rows(num_windows: int = len(DAYS)) -> tuple[list[int], list[float | None]]:
    """Draw an id and a time for each row: times vary within a window, some are missing, and some decades too late."""
    random = np.random.default_rng(5)
    ids: list[int] = []
    times: list[float | None] = []
    for window, day in enumerate(DAYS[:num_windows]):
        ids += (random.integers(0, 60, WINDOW) + 8 * window).tolist()
        of_rows = START + ((day or 0) + random.normal(0, 0.1, WINDOW)) * DAY
        of_rows[:9] += 40 * 365 * DAY
        is_missing = random.random(WINDOW) < 0.1
        times += [None if day is None or no else float(int(time)) for time, no in zip(of_rows, is_missing, strict=True)]
    return ids, times


def compute_window_times(times: list[float | None]) -> list[float]:
    found: list[float] = []
    for start in range(0, len(times), WINDOW):
        present = [time for time in times[start : start + WINDOW] if time is not None]
        latest = found[-1] if found else -1e18
        found.append(max(latest, statistics.median_low(present)) if present else latest)
    return found


def write_rows(path: Path, ids: list[int], times: list[float | None]) -> DataFile:
    shown = ["" if time is None else datetime.fromtimestamp(time, UTC).strftime(FORM) for time in times]
    rows = [f"{number % 2},{one},{time}" for number, (one, time) in enumerate(zip(ids, shown, strict=True))]
    path.write_text("\n".join(["y,a,at", *rows]) + "\n")
    return DataFile.from_path(path)


def make_config(rule: dict[str, Any] = RULE, **more: Any) -> DataConfig:
    time = {"name": "at", "time_format": FORM}
    document = {"train": ["log.csv"], "format": "csv", "split": "tail", "order": "time", "window_rows": WINDOW}
    schema = {"label": "y", "categorical": [{"name": "a"}], "time": time}
    return DataConfig.model_validate({**document, "schema": schema, "vocabulary": {"dynamic": rule}, **more})


def prepare_log(output: Path, file: DataFile, base: Encoders | None = None) -> tuple[Dataset, list[str]]:
    """Prepare the rows of a file for training, all of them; return them with the notes."""
    events: list[ProgressEvent | NoteEvent] = []
    evaluation = [write_rows(output.with_suffix(".eval.csv"), [1, 2], [START, None])]
    config = make_config(eval=["eval.csv"])
    prepare(config, [file], evaluation, output, num_threads=1, on_event=events.append, base=base)
    return open_packed(output), [event.name for event in events if isinstance(event, NoteEvent)]


def test_values_are_forgotten_by_the_times_of_windows_and_late_rows_age_nothing(tmp_path: Path) -> None:
    ids, times = draw_rows()
    dataset, notes = prepare_log(tmp_path / "packed", write_rows(tmp_path / "log.csv", ids, times))
    plain = MapByTime(DynamicIdsConfig.model_validate(RULE), times=compute_window_times(times))
    num_reused = 0
    for window in range(len(DAYS)):
        rows = range(window * WINDOW, (window + 1) * WINDOW)
        expected, reused = plain.advance(window, [ids[row] for row in rows])
        assert dataset.train.read(np.array(rows)).ids.values.tolist() == [expected.get(ids[row], 0) for row in rows]
        assert dataset.reused[0][dataset.reused[0][:, 0] == window, 1].tolist() == reused
        num_reused += len(reused)
    assert num_reused > 50
    # The bound alone would not have freed so many rows.
    assert dataset.encoders is not None
    assert dataset.encoders.vocabularies[0].num_ids < 120
    # A window that is a few hours late is none of this.
    assert notes == []


def test_a_log_that_goes_on_from_a_saved_one_forgets_as_the_whole_does(tmp_path: Path) -> None:
    ids, times = draw_rows()
    whole, _ = prepare_log(tmp_path / "whole", write_rows(tmp_path / "whole.csv", ids, times))
    first = write_rows(tmp_path / "first.csv", ids[: 6 * WINDOW], times[: 6 * WINDOW])
    second = write_rows(tmp_path / "second.csv", ids[6 * WINDOW :], times[6 * WINDOW :])
    prepare_log(tmp_path / "one", first)
    base = Encoders.load(tmp_path / "one" / ENCODERS)
    rest, _ = prepare_log(tmp_path / "two", second, base)
    numbers = np.arange(6 * WINDOW, len(ids))
    assert np.array_equal(rest.train.read(numbers - 6 * WINDOW).ids.values, whole.train.read(numbers).ids.values)
    assert np.array_equal(rest.reused[0], whole.reused[0][whole.reused[0][:, 0] >= 6] - np.array([6, 0]))
    assert rest.encoders is not None
    assert whole.encoders is not None
    one, other = rest.encoders.vocabularies[0], whole.encoders.vocabularies[0]
    assert isinstance(one, DynamicVocabulary)
    assert isinstance(other, DynamicVocabulary)
    assert np.array_equal(one.window_times, other.window_times)


def test_files_that_are_followed_forget_as_the_whole_log_does(tmp_path: Path) -> None:
    ids, times = draw_rows()
    whole, _ = prepare_log(tmp_path / "whole", write_rows(tmp_path / "whole.csv", ids, times))
    (tmp_path / "live").mkdir()
    settle = {"settle_seconds": 0.0, "look_every_seconds": 0.1, "idle_minutes": 1e-5}
    config = make_config(train=[str(tmp_path / "live" / "*.csv")], follow=settle)
    follower = Follower(config, None, tmp_path / "prepared", None, 1, lambda _: None)
    for number, (start, end) in enumerate([(0, 2500), (2500, 7000), (7000, 7300), (7300, len(ids))]):
        write_rows(tmp_path / "live" / f"{number}.csv", ids[start:end], times[start:end])
        ledger = follower.prepare_next(batch_rows=512, num_trained=-1)
    ledger = follower.prepare_next(batch_rows=512, num_trained=len(ids))
    joined = open_followed(tmp_path / "prepared" / ledger.pieces[-1].name, WINDOW, 1)
    numbers = np.arange(len(ids))
    assert len(ledger.pieces) > 2
    assert np.array_equal(joined.train.read(numbers).ids.values, whole.train.read(numbers).ids.values)
    assert np.array_equal(joined.reused[0], whole.reused[0])


def test_rows_far_behind_the_log_are_reported_with_their_window(tmp_path: Path) -> None:
    ids, times = draw_rows(4)
    late = [None if time is None else time - (12 * DAY if row >= 3 * WINDOW else 0) for row, time in enumerate(times)]
    events: list[ProgressEvent | NoteEvent] = []
    file = write_rows(tmp_path / "log.csv", ids, late)
    config = make_config(eval=["eval.csv"])
    prepare(config, [file], [file], tmp_path / "packed", num_threads=1, on_event=events.append)
    (note,) = [event for event in events if isinstance(event, NoteEvent)]
    assert note.name == "times_go_back"
    assert "window 4 of the training rows is 11.5 days before an earlier one" in note.message


def prepare_two_columns(
    directory: Path, name: str, day: float | None, b: str, ttl_of_b: dict[str, Any], base: Encoders | None = None
) -> Encoders:
    """Prepare three windows of a day, or without times, with column `b` of one value or empty."""
    at = "" if day is None else datetime.fromtimestamp(START + day * DAY, UTC).strftime(FORM)
    (directory / f"{name}.csv").write_text("y,a,b,at\n" + f"1,3,{b},{at}\n" * (3 * WINDOW))
    file = DataFile.from_path(directory / f"{name}.csv")
    schema = {"label": "y", "categorical": [{"name": "a"}, {"name": "b"}], "time": {"name": "at", "time_format": FORM}}
    columns = {"a": {"dynamic": {"ttl_days": 2.5}}, "b": {"dynamic": ttl_of_b}}
    config = make_config(schema=schema, vocabulary={"columns": columns}, eval=["eval.csv"])
    output = directory / name
    prepare(config, [file], [file], output, num_threads=1, on_event=lambda _: None, base=base)
    return Encoders.load(output / ENCODERS)


def test_rows_without_times_go_on_from_the_last_time_also_in_a_column_without_values(tmp_path: Path) -> None:
    base = prepare_two_columns(tmp_path, "first", 20, "", {"ttl_days": 30})
    for name, day in (("untimed", None), ("late", 3.0)):
        found = prepare_two_columns(tmp_path, name, day, "5", {"ttl_days": 30}, base).vocabularies
        for vocabulary in found:
            assert isinstance(vocabulary, DynamicVocabulary)
            # Neither rows without times nor late ones turn the clock back.
            assert vocabulary.window_times.tolist() == [START + 20 * DAY]


def test_a_column_that_has_lived_by_rows_and_gets_none_with_times_is_refused(tmp_path: Path) -> None:
    base = prepare_two_columns(tmp_path, "first", 0, "5", {"ttl_rows": 5000})
    with pytest.raises(DataError, match=r"data\.schema\.time: no training row has a time"):
        prepare_two_columns(tmp_path, "second", None, "5", {"ttl_days": 30}, base)


def test_windows_of_an_unknown_time_have_the_time_of_the_oldest_known_one() -> None:
    clock = WindowClock(np.empty(0), np.array([np.nan, 10.0, 30.0]))
    assert [clock.find_oldest(window, 15.0) for window in range(3)] == [None, None, 2]
    assert WindowClock(np.array([10.0]), np.array([np.nan, 30.0])).find_oldest(1, 15.0) == 1


def test_a_log_without_times_and_a_value_that_is_none_are_refused(tmp_path: Path) -> None:
    ids, times = draw_rows(2)
    with pytest.raises(DataError, match=r"data\.schema\.time: no training row has a time"):
        prepare_log(tmp_path / "packed", write_rows(tmp_path / "log.csv", ids, [None] * len(times)))
    file = write_rows(tmp_path / "log.csv", ids, times)
    Path(file.name).write_text(Path(file.name).read_text() + "1,3,2026-11-01\n")
    with pytest.raises(DataError, match=r"line 2050.*at.*'2026-11-01' is not a time of the form"):
        prepare_log(tmp_path / "other", DataFile.from_path(tmp_path / "log.csv"))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"schema": WITHOUT}, "dynamic.ttl_days: the schema names no column of"),
        ({"vocabulary": {"dynamic": {**RULE, "ttl_rows": 5}}}, "dynamic.ttl_days: is set beside ttl_rows"),
        ({"vocabulary": {"columns": {"a": {"dynamic": RULE}}}, "schema": WITHOUT}, "columns.a.dynamic.ttl_days: the"),
        ({"format": "criteo_tsv", "schema": None}, "and a format with a schema"),
    ],
)
def test_what_has_no_times_is_refused(document: dict[str, Any], said: str) -> None:
    plain = make_config().model_dump(mode="json", by_alias=True)
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": plain | document, "batch": {"global_size": 512}})
    assert said in str(caught.value)


def test_the_time_may_be_an_input_too_and_else_is_none_of_the_model() -> None:
    schema = {"label": "y", "categorical": [{"name": "a"}, {"name": "at", "time_part": "hour"}]}
    assert SchemaConfig.model_validate({**schema, "time": {"name": "at"}}).names == ["y", "a", "at"]
    other = SchemaConfig.model_validate({**schema, "time": {"name": "then"}})
    assert (other.names, other.target_names) == (["y", "a", "at", "then"], {"y", "then"})
    for wrong, said in (({"name": "y"}, "names 'y' twice"), ({"name": "t", "time_format": "%H:%M"}, "the year")):
        with pytest.raises(ValueError, match=said):
            SchemaConfig.model_validate({**schema, "time": wrong})
