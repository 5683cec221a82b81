from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.report.gather import InspectedRows, gather
from dlrm.data.inspect.report.report import Report, make_report
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.programs.inspect import inspect_rows

N = 20_000
DRAW = np.random.default_rng(0)
LABEL = (DRAW.random(N) < 0.3).astype(np.int64)
SITE = DRAW.zipf(1.5, N) % 5000
COLUMNS = {
    "label": LABEL,
    "price": np.where(DRAW.random(N) < 0.25, None, DRAW.normal(10.0, 2.0, N)),
    "refund": LABEL * 3.0 + DRAW.normal(size=N) / 10,
    "version": np.ones(N),
    "site": SITE,
    "site_name": np.char.add("site ", SITE.astype(str)),
    "request": np.char.add("r", np.arange(N).astype(str)),
    "tags": [[f"t{n}" for n in range(row % 3)] for row in range(N)],
}
SCHEMA = {
    "label": "label",
    "dense": [{"name": name} for name in ("price", "refund", "version")],
    "categorical": [
        {"name": "site", "type": "integer"},
        {"name": "site_name"},
        {"name": "request"},
        {"name": "tags", "multi_hot": True},
    ],
}


def unheard(num_rows: int, done_fraction: float) -> None:
    """Progress that nobody asked for."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    parquet.write_table(pa.table(COLUMNS), path, row_group_size=1000)
    return path


def gathered(path: Path, max_rows: int = 10**6) -> InspectedRows:
    config = DataConfig.model_validate({"train": [str(path)], "format": "parquet", "schema": SCHEMA})
    return gather(config, max_rows, unheard)


@pytest.fixture(scope="module")
def report(path: Path) -> Report:
    return make_report(gathered(path), embedding_dim=16, min_count=3)


def test_faults_are_warned_about_and_nothing_else(report: Report) -> None:
    assert {(warned.kind, warned.column) for warned in report.warnings} == {
        ("leak", "refund"),
        ("constant", "version"),
        ("one_value_a_row", "request"),
        ("same_columns", "site"),
    }
    (same,) = [warned.message for warned in report.warnings if warned.kind == "same_columns"]
    assert "site and site_name" in same


def test_figures_are_those_of_the_rows(report: Report) -> None:
    assert report.num_rows == report.num_rows_looked_at == N
    assert report.label_rate == pytest.approx(LABEL.mean())
    price, values = report.dense[0], np.array(COLUMNS["price"], dtype=float)
    assert price.missing_share == pytest.approx(np.isnan(values).mean())
    assert price.quantiles[0.5] == pytest.approx(np.nanmedian(values))
    assert (price.min, price.max) == (np.nanmin(values), np.nanmax(values))
    assert sum(price.bars) == pytest.approx(0.98 * np.sum(~np.isnan(values)), abs=3)
    site = report.categorical[0]
    counts = np.sort(np.unique(SITE, return_counts=True)[1])[::-1]
    assert site.num_distinct == len(counts)
    assert site.num_seen_once == np.sum(counts == 1)
    assert site.covered_by[10] == pytest.approx(counts[:10].sum() / N)
    assert site.curve[0] == (1, counts[0])
    assert site.curve[-1] == (len(counts), counts[-1])
    assert {table.min_count: table.num_rows for table in site.tables} == {
        min_count: np.sum(counts >= min_count) + 2 for min_count in (1, 2, 3, 5, 10)
    }
    assert site.tables[0].num_bytes == site.tables[0].num_rows * 4 * 17


def test_the_label_rate_is_given_by_tenths_of_the_order(report: Report) -> None:
    expected = LABEL.reshape(10, -1).mean(axis=1)
    assert [part.num_rows for part in report.parts] == [N // 10] * 10
    assert [part.label_rate for part in report.parts] == pytest.approx(expected.tolist())


def test_a_sample_is_spread_over_all_rows_and_says_so(path: Path) -> None:
    rows = gathered(path, max_rows=500)
    assert rows.num_rows == N
    assert 400 <= len(rows.labels) <= 500
    assert np.bincount(rows.row_numbers // 2000).tolist() == pytest.approx([len(rows.labels) / 10] * 10, abs=5)
    assert np.array_equal(rows.labels, LABEL[rows.row_numbers])
    site = rows.categorical(0)
    assert np.array_equal(site.distinct.to_numpy()[site.codes], SITE[rows.row_numbers])
    tags = rows.categorical(3)
    assert tags.lengths is not None
    assert np.array_equal(tags.lengths, rows.row_numbers % 3)
    sampled = make_report(gathered(path, max_rows=500), 16, 2)
    assert (sampled.num_rows, sampled.num_rows_looked_at) == (N, len(rows.labels))


def test_a_sample_counts_the_values_it_holds_and_no_others(path: Path) -> None:
    rows = gathered(path, max_rows=500)
    sampled = make_report(gathered(path, max_rows=500), 16, 2)
    site, _, _, tags = sampled.categorical
    values, counts = np.unique(SITE[rows.row_numbers], return_counts=True)
    assert site.num_distinct == len(values)
    assert site.curve[-1][1] == counts.min() == 1
    assert tags.num_distinct == 2
    assert [warned.column for warned in sampled.warnings if warned.kind == "one_value_a_row"] == ["request"]


def num_held_bytes(found: InspectedRows) -> list[int]:
    """Of each column."""
    tables, num_dense = found.tables, len(found.names.dense)
    dense = [sum(table.dense[place].nbytes for table in tables) for place in range(num_dense)]
    columns = [[table.categorical[place] for table in tables] for place in range(4)]
    return dense + [sum(8 * len(part.codes) + part.distinct.estimated_size() for part in parts) for parts in columns]


@pytest.mark.parametrize(
    ("name", "bound"), [("MAX_BYTES", 200_000), ("MAX_COLUMN_BYTES", 20_000), ("MAX_BYTES", 1), ("MAX_BYTES", 2**30)]
)
def test_memory_is_bounded_by_bytes_and_the_rows_stay_spread(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bound: int
) -> None:
    monkeypatch.setattr(f"dlrm.data.inspect.report.gather.{name}", bound)
    found = gathered(path)
    held, rows = num_held_bytes(found), found
    if bound == 1:
        assert rows.row_numbers.tolist() == [0]
        return
    if bound < 2**30:
        assert bound / 4 < (sum(held) if name == "MAX_BYTES" else max(held)) <= bound
    step = rows.row_numbers[1]
    assert rows.row_numbers.tolist() == list(range(0, N, step))
    assert (step == 1) == (bound == 2**30)
    assert np.array_equal(rows.labels, LABEL[rows.row_numbers])
    site = rows.categorical(0)
    assert np.array_equal(site.distinct.to_numpy()[site.codes], SITE[rows.row_numbers])


def test_bad_rows_are_left_out_and_reported_once_however_often_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "day.tsv"
    good = "1" + "\t1" * 39 + "\n"
    path.write_text(good * 50 + "2" + "\t1" * 39 + "\n" + good * 50)
    found = gather(DataConfig(train=[str(path)]), 1000, unheard)
    report = make_report(found, 16, 2)
    assert (report.num_rows, report.num_rows_looked_at, report.num_bad_rows) == (101, 100, 1)
    assert "line 51" in report.faults[0]
    assert report.warnings[0].kind == "one_class"
    monkeypatch.setattr("dlrm.data.inspect.report.gather.MAX_BYTES", 40 * 100)
    again = gather(DataConfig(train=[str(path)]), 1000, unheard)
    assert len(again.labels) < 100
    assert (again.num_bad_rows, len(again.faults)) == (1, 1)
    path.write_text("x\n" * 5)
    with pytest.raises(DataError, match="line 1"):
        gather(DataConfig(train=[str(path)]), 1000, unheard)


def test_a_column_whose_table_grows_without_end_is_better_hashed(path: Path) -> None:
    small = make_report(gathered(path, max_rows=500), embedding_dim=2**14, min_count=1).categorical[2]
    assert small.hash_size is not None
    assert 2 ** (small.hash_size.bit_length() - 1) == small.hash_size
    assert small.hash_size * 4 * (2**14 + 1) <= 2**30
    assert make_report(gathered(path, max_rows=500), 16, 1).categorical[2].hash_size is None


def test_synthetic_rows_are_looked_at_as_a_model_gets_them() -> None:
    config = DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": 5000, "num_ids": 100}})
    found = gather(config, 10**6, unheard)
    report = make_report(found, 16, 2)
    assert (len(report.dense), len(report.categorical)) == (13, 26)
    assert [table.min_count for table in report.categorical[0].tables] == [None]


@pytest.mark.parametrize("missing", ["dense", "categorical"])
def test_data_without_columns_of_one_kind_is_looked_at_raw_and_prepared(path: Path, tmp_path: Path, missing: str):
    raw = {"train": [str(path)], "format": "parquet", "schema": {**SCHEMA, missing: []}}
    config = DataConfig.model_validate(raw)
    packed = find_or_prepare(config, None, tmp_path, base_directory=tmp_path, num_threads=1, on_event=lambda _: None)
    for data in (config, DataConfig.model_validate({"train": [str(packed)], "format": "packed"})):
        report = make_report(gather(data, 10**6, unheard), embedding_dim=16, min_count=3)
        assert not getattr(report, missing)
        found = {column.name for column in (*report.dense, *report.categorical)}
        assert found >= {name for kind in ("dense", "categorical") if kind != missing for name in names_of(kind)}


@pytest.mark.parametrize("vocabulary", [{"hash_size": 5000, "num_hashes": 2}, {"num_remainders": 7}])
def test_packed_values_of_several_table_rows_are_values_and_no_lists(
    tmp_path: Path, vocabulary: dict[str, object]
) -> None:
    path = tmp_path / "rows.csv"
    texts = ["" if row % 10 == 0 else f"v{row % 61}" for row in range(2440)]
    path.write_text("\n".join(["y,a", *(f"{row % 2},{text}" for row, text in enumerate(texts))]) + "\n")
    schema = {"label": "y", "categorical": [{"name": "a"}]}
    document = {"train": [str(path)], "format": "csv", "schema": schema, "vocabulary": vocabulary}
    config = DataConfig.model_validate(document)
    packed = find_or_prepare(config, None, tmp_path, base_directory=tmp_path, num_threads=1, on_event=lambda _: None)
    data = DataConfig.model_validate({"train": [str(packed)], "format": "packed"})
    (column,) = make_report(gather(data, 10**6, unheard), embedding_dim=16, min_count=3).categorical
    assert not column.is_multi_hot
    assert column.missing_share == pytest.approx(0.1, abs=0.02)
    assert column.num_distinct == 61
    assert " + " in column.top_values[0][0]


def test_sequences_are_read_from_the_table_of_their_target_raw_and_prepared(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    films = random.integers(0, 50, 2000)
    seen = [random.integers(0, 50, length).tolist() for length in random.integers(0, 9, 2000)]
    rows = pl.DataFrame({"y": random.integers(0, 2, 2000), "film": films, "seen": seen})
    rows.write_parquet(tmp_path / "rows.parquet")
    sequence = {"target": "film", "max_length": 5}
    columns = [{"name": "film", "type": "integer"}]
    columns += [{"name": "seen", "type": "integer", "multi_hot": True, "sequence": sequence}]
    document = {"train": [str(tmp_path / "rows.parquet")], "format": "parquet", "eval_fraction": 0.1}
    raw = DataConfig.model_validate({**document, "schema": {"label": "y", "categorical": columns}})
    packed = find_or_prepare(raw, None, tmp_path, base_directory=tmp_path, num_threads=1, on_event=lambda _: None)
    for config in (raw, DataConfig.model_validate({"train": [str(packed)], "format": "packed"})):
        film, of_film = make_report(gather(config, 10**6, unheard), embedding_dim=16, min_count=1).categorical
        assert (film.target, of_film.target, of_film.tables) == (None, "film", [])
        assert (of_film.num_distinct, of_film.hash_size) == (50, None)
        assert {table.num_rows for table in film.tables if table.min_count in (None, 1)} == {52}


def names_of(kind: str) -> list[str]:
    columns = SCHEMA[kind]
    assert isinstance(columns, list)
    return [column["name"] for column in columns]


def test_numbers_that_predict_better_as_ids_or_ranges_are_warned_about(tmp_path: Path) -> None:
    ids, ages = DRAW.integers(0, 300, N), DRAW.normal(40.0, 10.0, N)
    logits = DRAW.normal(-1.0, 1.0, 300)[ids] - np.abs(ages - 40.0) / 10
    columns = {
        "label": (DRAW.random(N) < 1.0 / (1.0 + np.exp(-logits))).astype(np.int64),
        "hash": (ids * 3037000493 % 2**40).astype(np.int64),
        "age": ages,
        "age_too": ages + 1.0,
        "left_out": DRAW.normal(-1.0, 1.0, 300)[ids],
    }
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    schema = {
        "label": "label",
        "dense": [{"name": name} for name in ("hash", "age", "age_too")],
        "categorical": [{"name": "age_too", "bucketize": 16}],
    }
    config = DataConfig.model_validate({"train": [str(path)], "format": "parquet", "schema": schema})
    found = make_report(gather(config, 10**6, unheard), embedding_dim=16, min_count=3)
    messages = {warned.column: warned.message for warned in found.warnings if warned.kind == "better_use"}
    assert set(messages) == {"hash", "age"}
    assert messages["hash"].endswith('add { name = "hash", type = "integer" } to data.schema.categorical')
    assert messages["age"].endswith('add { name = "age", bucketize = 64 } to data.schema.categorical')


def test_a_column_that_the_schema_leaves_out_is_warned_about_where_it_predicts_best(tmp_path: Path) -> None:
    signal = DRAW.normal(size=N)
    columns = {
        "label": np.where(DRAW.random(N) < 1.0 / (1.0 + np.exp(-signal)), "yes", "no"),
        "signal": signal,
        "weak": signal + DRAW.normal(size=N),
        "weaker": signal + 3 * DRAW.normal(size=N),
        "leak": signal,
    }
    columns["leak"] = (columns["label"] == "yes") + DRAW.normal(size=N) / 10
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    schema = {"label": "label", "positive": "yes", "dense": [{"name": "weak"}]}
    request = {"train": [str(path)], "format": "parquet", "schema": schema}
    report = inspect_rows({"data": request, "max_rows": 10**6, "embedding_dim": 16})
    assert [(warned["kind"], warned["column"]) for warned in report["warnings"]] == [("unused", "signal")]


def test_honest_strong_predictors_are_not_suspected(tmp_path: Path) -> None:
    """One column with an AUC near 0.88, beside others that predict nothing."""
    signal = DRAW.normal(size=N)
    labels = (DRAW.random(N) < 1.0 / (1.0 + np.exp(-3 * signal))).astype(np.int64)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"label": labels, "strong": signal, "a": SITE, "b": DRAW.normal(size=N)}), path)
    schema = {
        "label": "label",
        "dense": [{"name": "strong"}, {"name": "b"}],
        "categorical": [{"name": "a", "type": "integer"}],
    }
    config = DataConfig.model_validate({"train": [str(path)], "format": "parquet", "schema": schema})
    report = make_report(gather(config, 10**6, unheard), embedding_dim=16, min_count=3)
    assert 0.85 < (report.dense[0].auc or 0.0) < 0.95
    assert not report.warnings


def test_values_and_names_that_give_the_label_away_are_warned_about_and_not_missed(tmp_path: Path) -> None:
    rare = DRAW.random(N) < 0.1
    columns = {
        "label": LABEL,
        "state": np.where((LABEL == 1) & rare, "refused", np.char.add("s", (SITE % 7).astype(str))),
        "fee": np.where((LABEL == 0) & rare, 9.5, DRAW.normal(size=N)),
        "tags": [["a", "b"] + ["late"] * int(label and few) for label, few in zip(LABEL, rare, strict=True)],
        "default": np.where(rare, "yes", "no"),
        # Left out by the schema, rightly.
        "purchase": LABEL * (DRAW.random(N) < 0.6),
    }
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns), path)
    used = [{"name": "state"}, {"name": "tags", "multi_hot": True}, {"name": "default"}]
    schema = {"label": "label", "dense": [{"name": "fee"}], "categorical": used}
    data = {"train": [str(path)], "format": "parquet", "schema": schema}
    report = inspect_rows({"data": data, "max_rows": 10**6, "embedding_dim": 16})
    warned = {
        warning["column"]: (warning["kind"], warning["message"].split(" in ")[0]) for warning in report["warnings"]
    }
    assert warned == {
        "fee": ("leak", "has 9.5"),
        "state": ("leak", "has 'refused'"),
        "tags": ("leak", "has 'late'"),
        "default": ("outcome", "called as a label is: is it known before the label? Otherwise leave it out"),
    }
