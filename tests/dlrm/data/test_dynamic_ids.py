"""Ids that come and go: the map against its rules in plain Python, the order of the rows, and what a log leaves."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from dlrm.config import ConfigError, DataConfig, DynamicIdsConfig, parse_job
from dlrm.data.encode.dynamic import DynamicMap, Entries, make_keys
from dlrm.data.encode.vocabulary import DynamicVocabulary
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_packed
from dlrm.data.prepare.prepare import prepare
from dlrm.data.raw.data_file import DataFile
from dlrm.data.time_order import TimeOrder

WINDOW = 1024


@dataclass
class PlainMap:
    """The rules, one value after another."""

    rule: DynamicIdsConfig
    rows: dict[int, int] = field(default_factory=dict[int, int])
    counts: Counter[int] = field(default_factory=Counter[int])
    last: dict[int, int] = field(default_factory=dict[int, int])
    free: list[int] = field(default_factory=list[int])
    num_rows: int = 2

    def is_old(self, last: int, window: int) -> bool:
        """Whether a value that window `last` had last is forgotten at the beginning of `window`."""
        return self.rule.ttl_rows is not None and last < window - max(-(-self.rule.ttl_rows // WINDOW), 1)

    def advance(self, window: int, values: list[int]) -> tuple[dict[int, int], list[int]]:
        """Return the row of each value that has one, and the rows that change hands. values: one a row of the log."""
        for value in [value for value, last in self.last.items() if self.is_old(last, window)]:
            if value in self.rows:
                self.free.append(self.rows.pop(value))
            del self.counts[value], self.last[value]
        waiting = [value for value in self.last if value not in self.rows]
        num_places = (self.rule.max_rows or 10**9) - 2
        if len(waiting) > 4 * num_places:
            waiting.sort(key=lambda value: (-self.last[value], value % 2**64))
            for value in waiting[2 * num_places :]:
                del self.counts[value], self.last[value]
        new = list(dict.fromkeys(values))
        self.counts.update(values)
        self.last.update(dict.fromkeys(values, window))
        due = [value for value in new if value not in self.rows and self.counts[value] >= self.rule.admit_after]
        due.sort(key=lambda value: -self.counts[value])
        reused: list[int] = []
        idle = [value for value in self.rows if self.last[value] <= window - 2]
        by_use = {"lru": lambda v: (self.last[v], self.counts[v]), "lfu": lambda v: (self.counts[v], self.last[v])}
        idle.sort(key=lambda value: (*by_use[self.rule.evict](value), self.rows[value]))
        self.free.sort()
        num_new = (self.rule.max_rows or 10**9) - self.num_rows
        num_evicted = max(0, len(due) - len(self.free) - num_new)
        rows = self.free[: len(due)]
        self.free = self.free[len(due) :]
        for value in idle[:num_evicted]:
            rows.append(self.rows.pop(value))
            del self.counts[value], self.last[value]
        reused = list(rows)
        while len(rows) < len(due) and self.num_rows < (self.rule.max_rows or 10**9):
            rows.append(self.num_rows)
            self.num_rows += 1
        self.rows |= dict(zip(due, rows, strict=False))
        return {value: self.rows[value] for value in new if value in self.rows}, sorted(reused)


RULES = [
    DynamicIdsConfig(admit_after=3, max_rows=40),
    DynamicIdsConfig(admit_after=1, max_rows=40, evict="lfu"),
    DynamicIdsConfig(admit_after=2, ttl_rows=3 * WINDOW),
    DynamicIdsConfig(admit_after=2, ttl_rows=2 * WINDOW - 5, max_rows=60),
    DynamicIdsConfig(admit_after=6, max_rows=16),
]


def drift(num_windows: int, seed: int, size: int = 90) -> list[list[int]]:
    """Draw the values of each window, of which some leave and others come from window to window."""
    rng = np.random.default_rng(seed)
    return [(rng.zipf(1.3, size) % 50 + 7 * window - 100).tolist() for window in range(num_windows)]


@pytest.mark.parametrize("rule", RULES, ids=["lru", "lfu", "ttl", "ttl and bound", "many wait"])
@pytest.mark.parametrize("seed", range(3))
def test_values_get_and_lose_rows_by_the_rules_also_in_a_log_of_two_parts(rule: DynamicIdsConfig, seed: int) -> None:
    plain, found = PlainMap(rule), DynamicMap(rule, WINDOW)
    num_reused = 0
    for window, values in enumerate(drift(30, seed)):
        expected, expected_reused = plain.advance(window, values)
        if window == 17:
            before = found.entries
            entries = Entries(before.keys, before.counts, before.last_windows - 17, before.rows)
            found = DynamicMap(rule, WINDOW, entries, found.num_rows)
        counts, first = Counter(values), {value: values.index(value) for value in values}
        numbers = pl.Series(list(counts))
        keys = make_keys(numbers)
        order = np.argsort(keys)
        rows, reused = found.advance(
            window if window < 17 else window - 17,
            keys[order],
            np.array([counts[value] for value in numbers])[order],
            np.array([first[value] for value in numbers])[order],
        )
        assert {int(numbers[int(i)]): int(row) for i, row in zip(order, rows, strict=True) if row >= 0} == expected
        assert reused.tolist() == expected_reused
        num_reused += len(reused)
        # Nothing that the window before still has is another's.
        assert len(set(plain.rows.values())) == len(plain.rows)
    assert num_reused > 5
    assert found.num_rows <= (rule.max_rows or 10**9)


def make_config(path: Path, rule: dict[str, Any], **more: Any) -> DataConfig:
    return DataConfig.model_validate(
        {
            "train": [str(path)],
            "format": "csv",
            "split": "tail",
            "order": "time",
            "window_rows": WINDOW,
            "schema": {"label": "y", "dense": [{"name": "x"}], "categorical": [{"name": "a"}, {"name": "b", **TEXT}]},
            "vocabulary": {"dynamic": rule},
            **more,
        }
    )


TEXT = {"type": "string", "multi_hot": True, "separator": "|"}


def write_log(path: Path, num_rows: int, start: int = 0) -> tuple[list[int], list[list[str]]]:
    rng = np.random.default_rng(start)
    day = (np.arange(num_rows) + start) // 3000
    ids = (rng.integers(0, 60, num_rows) + 25 * day).tolist()
    lists = [[f"t{value}" for value in rng.integers(0, 30, rng.integers(0, 4)) + 20 * d] for d in day]
    rows = [f"{i % 2},0.5,{one},{'|'.join(several)}" for i, (one, several) in enumerate(zip(ids, lists, strict=True))]
    path.write_text("\n".join(["y,x,a,b", *rows]) + "\n")
    return ids, lists


def test_a_log_is_encoded_window_by_window_and_its_evaluation_rows_by_the_last_map(tmp_path: Path) -> None:
    ids, lists = write_log(tmp_path / "log.csv", 20_000)
    rule = {"admit_after": 4, "max_rows": 90}
    config = make_config(tmp_path / "log.csv", rule)
    file = DataFile.from_path(tmp_path / "log.csv")
    prepare(config, [file], [], tmp_path / "packed", num_threads=2, on_event=lambda *_: None)
    dataset = open_packed(tmp_path / "packed")
    assert (dataset.window_rows, dataset.train.num_rows) == (WINDOW, 18_000)
    for feature, values in ((0, [[one] for one in ids]), (1, lists)):
        plain, num_reused = PlainMap(DynamicIdsConfig(**rule)), 0
        for window in range(18):
            rows = range(window * WINDOW, min((window + 1) * WINDOW, 18_000))
            # A list that repeats a value counts it once.
            seen = [value for row in rows for value in dict.fromkeys(values[row])]
            expected, reused = plain.advance(window, seen)
            read = dataset.train.read(np.array(rows)).ids
            starts = np.concatenate([[0], np.cumsum(read.lengths[feature])])
            of_feature = read.values[: read.lengths[0].sum()] if feature == 0 else read.values[read.lengths[0].sum() :]
            for place, row in enumerate(rows):
                # An empty list is a missing value.
                of_row = [expected.get(value, 0) for value in values[row]] or [1]
                assert of_feature[starts[place] : starts[place + 1]].tolist() == of_row
            of_window = dataset.reused[feature][dataset.reused[feature][:, 0] == window, 1]
            assert of_window.tolist() == reused
            num_reused += len(reused)
        assert num_reused > 30
        read = dataset.evaluation.read(np.arange(2000)).ids
        of_feature = read.values[:2000] if feature == 0 else read.values[2000:]
        expected = [[plain.rows.get(value, 0) for value in row] or [1] for row in values[18_000:]]
        assert of_feature.tolist() == [one for row in expected for one in row]


def test_a_log_that_goes_on_from_another_one_has_the_rows_of_both_in_one(tmp_path: Path) -> None:
    """The first log ends at the end of a window, so that all windows are the same."""
    whole, first, second = (tmp_path / name for name in ("whole.csv", "first.csv", "second.csv"))
    write_log(whole, 16 * WINDOW + 500)
    header, *rows = whole.read_text().splitlines()
    write_evaluation = tmp_path / "eval.csv"
    for path, part in ((first, rows[: 8 * WINDOW]), (second, rows[8 * WINDOW :]), (write_evaluation, rows[-50:])):
        path.write_text("\n".join([header, *part]) + "\n")
    rule = {"admit_after": 4, "max_rows": 150, "ttl_rows": 6 * WINDOW}
    opened = {}
    for name, path, base in (("whole", whole, None), ("first", first, None), ("second", second, "first")):
        config = make_config(path, rule, split="hash", eval=[str(write_evaluation)])
        evaluation = [DataFile.from_path(write_evaluation)]
        encoders = None if base is None else opened[base].encoders
        output, file = tmp_path / name, DataFile.from_path(path)
        prepare(config, [file], evaluation, output, num_threads=1, on_event=lambda *_: None, base=encoders)
        opened[name] = open_packed(output)
    numbers = np.arange(8 * WINDOW, 16 * WINDOW)
    expected = opened["whole"].train.read(numbers).ids
    found = opened["second"].train.read(numbers - 8 * WINDOW).ids
    assert np.array_equal(found.values, expected.values)
    for feature in range(2):
        reused = opened["whole"].reused[feature]
        later = reused[reused[:, 0] >= 8] - np.array([8, 0])
        assert np.array_equal(opened["second"].reused[feature], later)
        vocabularies = [opened[name].encoders.vocabularies[feature] for name in ("second", "whole")]
        maps = [dict(zip(v.values.to_list(), v.rows.tolist(), strict=True)) for v in vocabularies]
        assert maps[0] == maps[1]
        assert isinstance(vocabularies[0], DynamicVocabulary)


@pytest.mark.parametrize(
    ("rule", "more", "said"),
    [
        ({"max_rows": 20}, {}, "more than max_rows 20, data.vocabulary.dynamic.max_rows"),
        ({"max_rows": 90}, {"window_rows": 2 * WINDOW}, "a has windows of 1,024 rows in the base"),
    ],
)
def test_a_map_goes_on_from_no_base_of_another_kind(
    tmp_path: Path, rule: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    write_log(tmp_path / "log.csv", 3000)
    file = DataFile.from_path(tmp_path / "log.csv")
    base = make_config(tmp_path / "log.csv", {"max_rows": 90})
    prepare(base, [file], [], tmp_path / "base", num_threads=1, on_event=lambda *_: None)
    encoders = open_packed(tmp_path / "base").encoders
    config = make_config(tmp_path / "log.csv", rule, **more)
    with pytest.raises(DataError) as caught:
        prepare(config, [file], [], tmp_path / "out", num_threads=1, on_event=lambda *_: None, base=encoders)
    assert said in f"{caught.value.message}, {caught.value.field}"


@pytest.mark.parametrize("num_rows", [10_000, 4096, 700])
def test_rows_in_order_of_time_come_window_by_window_and_shuffled_within(num_rows: int) -> None:
    order = TimeOrder(num_rows, seed=3, window_rows=2048)
    for start in range(0, num_rows, 2048):
        end = min(start + 2048, num_rows)
        rows = np.concatenate([order.find_rows(at, min(at + 300, end)).row_numbers for at in range(start, end, 300)])
        assert sorted(rows.tolist()) == list(range(start, end))
        assert rows.tolist() != list(range(start, end))


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        ({"order": "shuffled", "window_rows": None}, {}, "data.order: ids that come and go have their rows for a time"),
        ({"window_rows": 2000}, {}, "data.window_rows: 2,000 is not a multiple of 1,024 (valid: 1,024 or 2,048)"),
        ({"split": "hash"}, {}, "data.split: rows by hash are of all times"),
        ({"vocabulary": {"dynamic": {}}}, {}, "data.vocabulary.dynamic.max_rows: no value would ever lose its row"),
        ({}, {"batch": {"global_size": 2048}}, "batch.global_size: 2,048 is more than the 1,024 rows of a window"),
        ({}, {"run": {"epochs": 0.5}}, "run.epochs: is for shuffled rows"),
        ({}, {"run": {"epochs": 2}}, "run.epochs: is for shuffled rows, and data.order is time (valid: 1.0)"),
        (
            {},
            {"run": {"keep_model": "best"}},
            'run.keep_model: is for shuffled rows, and data.order is time (valid: "l',
        ),
    ],
)
def test_what_means_nothing_is_refused(data: dict[str, Any], more: dict[str, Any], said: str) -> None:
    document = make_config(Path("log.csv"), {"max_rows": 100}).model_dump(mode="json", by_alias=True)
    plain = {"data": document, "batch": {"global_size": 512}}
    assert parse_job(plain).run.keep_model == "last"
    with pytest.raises(ConfigError) as caught:
        parse_job({**plain, "data": document | data, **more})
    assert said in str(caught.value)
