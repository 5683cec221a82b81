"""`dlrm report` on the results of a small sweep, and what it says of results that it cannot use."""

import html
import json
import math
import re
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scipy import stats

from tests.service.cli.reporting.recorded import (
    BATCHES,
    CRITICAL_BATCH,
    NUM_SAMPLES,
    SEEDS,
    draw_labels,
    list_trials,
    make_trial,
    write_results,
)

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a sweep."""
    directory = tmp_path_factory.mktemp("sweep")
    return write_results(directory, list_trials(directory))


def read_json(dlrm: Command, *arguments: object) -> dict[str, Any]:
    ended = dlrm("report", *map(str, arguments), "--json")
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def refuse(dlrm: Command, *arguments: object) -> str:
    ended = dlrm("report", *map(str, arguments))
    assert (ended.code, ended.out) == (2, ""), ended.err
    return " ".join(ended.err.split())


def find(rows: list[dict[str, Any]], method: str, batch: int) -> dict[str, Any]:
    (row,) = [row for row in rows if (row["method"], row["compared"]["batch.global_size"]) == (method, batch)]
    return row


def read_html_tables(text: str) -> list[list[list[str]]]:
    tables = re.findall(r"<table>(.*?)</table>", text, re.DOTALL)
    rows = [re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL) for table in tables]
    return [
        [[html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in table]
        for table in rows
    ]


def read_markdown_tables(text: str) -> list[list[list[str]]]:
    tables: list[list[list[str]]] = []
    lines = ["", *text.splitlines()]
    for before, line in pairwise(lines):
        if not line.startswith("| ") or line.startswith(("| :---", "| ---:")):
            continue
        if not before.startswith("| "):
            tables.append([])
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        tables[-1].append([html.unescape(re.sub(r"\\(.)", r"\1", cell)) for cell in cells])
    return tables


def test_the_main_table_has_the_confirmed_means_of_the_best_settings(sweep: Path, dlrm: Command) -> None:
    rows = read_json(dlrm, sweep)["rows"]
    assert [(row["compared"]["batch.global_size"], row["method"]) for row in rows] == [
        (batch, method) for batch in BATCHES for method in ("adam", "lamb")
    ]
    row = find(rows, "adam", 4096)
    aucs = [make_trial(sweep, "adam", 4096, seed).metrics["auc"] or 0.0 for seed in SEEDS]
    low, high = stats.t.interval(0.95, 2, loc=statistics.fmean(aucs), scale=stats.sem(aucs))
    assert (row["auc"]["value"], row["auc"]["low"], row["auc"]["high"]) == pytest.approx(
        (statistics.fmean(aucs), low, high), rel=1e-9
    )
    assert (row["settings"], row["seeds"], row["is_confirmed"]) == (
        {"dense_optimizer.learning_rate": 0.01},
        [*SEEDS],
        True,
    )
    assert (row["num_diverged"], row["num_settings"], row["edges"]) == (1, 3, [])
    assert (row["num_steps"], row["num_samples"], row["batch"]) == (math.ceil(1e6 / 4096), 1e6, 4096)
    assert (row["cpu_seconds"], row["samples_per_second"]) == (15.0, 100_000.0)
    assert row["train_auc_gap"]["value"] == pytest.approx(0.01, rel=1e-6)


def test_a_difference_is_paired_by_seeds_and_by_rows(sweep: Path, dlrm: Command) -> None:
    report = read_json(dlrm, sweep, "--base", "adam")
    assert [(one["cell"], one["base"]) for one in report["differences"]] == [
        (f"lamb, {batch}", f"adam, {batch}") for batch in BATCHES
    ]
    one = report["differences"][0]
    assert (one["seeds"], one["is_paired_by_rows"], one["auc"]["source"]) == ([*SEEDS], True, "seeds and rows")
    rows = report["rows"]
    expected = find(rows, "lamb", 1024)["auc"]["value"] - find(rows, "adam", 1024)["auc"]["value"]
    assert one["auc"]["value"] == pytest.approx(expected, abs=1e-12)
    assert one["verdict"] == "higher AUC, lower log-loss"
    # The rows of both are the same, so that the difference is surer than each of the two.
    assert one["auc"]["standard_error"] < 0.7 * (make_trial(sweep, "lamb", 1024, 10).metrics["auc_standard_error"] or 0)


def test_the_base_may_be_one_cell_and_an_unknown_one_is_refused_with_the_valid_names(
    sweep: Path, dlrm: Command
) -> None:
    report = read_json(dlrm, sweep, "--base", "adam", "--base-cell", "4096")
    assert {one["base"] for one in report["differences"]} == {"adam, 4096"}
    assert len(report["differences"]) == 5
    assert "--base: no method 'sgd' in the results (valid: adam, lamb)" in refuse(dlrm, sweep, "--base", "sgd")
    said = refuse(dlrm, sweep, "--base", "adam", "--base-cell", "512")
    assert '--base-cell: adam has no results at \'512\' (valid: "1024", "4096", "16384")' in said
    assert "valid: adam, lamb" in refuse(dlrm, sweep, "--base-cell", "4096")


def test_the_critical_batch_is_that_of_the_curves_and_agrees_with_the_noise_scale(sweep: Path, dlrm: Command) -> None:
    report = read_json(dlrm, sweep, "--target-auc", "0.56")
    for scaling in report["scalings"]:
        assert scaling["critical_batch"] == pytest.approx(CRITICAL_BATCH, rel=1e-3)
        assert scaling["min_samples"] == pytest.approx(0.06 / 0.3 * NUM_SAMPLES, rel=1e-3)
        assert [point["samples"] for point in scaling["batches"]] == pytest.approx(
            [0.2 * NUM_SAMPLES * (1.0 + batch / CRITICAL_BATCH) for batch in BATCHES], rel=1e-4
        )
    text = dlrm("report", str(sweep), "--target-auc", "0.56").out
    assert "the critical batch is about 6,000" in text
    assert (
        "7,000 (median of the runs at their end), agree within a factor of 2: they are a factor of 1.17 apart" in text
    )
    assert read_json(dlrm, sweep)["target_auc"] == pytest.approx(0.5 + 0.3 / (1.0 + 16_384 / CRITICAL_BATCH))


def test_the_page_and_the_markdown_have_the_same_tables_and_sentences(
    sweep: Path, tmp_path: Path, dlrm: Command
) -> None:
    page, markdown, plots = tmp_path / "report.html", tmp_path / "report.md", tmp_path / "plots"
    command = ["report", str(sweep), "--base", "adam", "--output", str(page), "--markdown", str(markdown)]
    assert dlrm(*command, "--plots", str(plots)).code == 0
    text, lines = page.read_text(), markdown.read_text()
    tables = read_html_tables(text)
    assert tables == read_markdown_tables(lines)
    assert [len(table) for table in tables] == [7, 4, 2, 4, 7, 3, 7, 3, 37, 2]
    sentences = [html.unescape(found) for found in re.findall(r"<(?:p|li)[^>]*>(.*?)</(?:p|li)>", text)]
    plain = html.unescape(re.sub(r"\\(.)", r"\1", lines))
    assert len(sentences) > 10
    assert all(sentence in plain for sentence in sentences)
    assert sorted(path.name for path in plots.iterdir()) == [
        "auc.svg",
        "samples-to-target.svg",
        "steps-to-target.svg",
    ]
    for path in plots.iterdir():
        assert f"(plots/{path.name})" in lines
        drawn = path.read_text().strip()
        assert drawn in text
        assert ElementTree.fromstring(drawn).attrib["role"] == "img"
    assert not re.search(r"<script|https?://(?!www\.w3\.org/2000/svg)", text)
    assert str(sweep) not in text + lines


def test_other_evaluation_rows_are_not_paired_and_the_report_says_so(tmp_path: Path, dlrm: Command) -> None:
    others = make_trial(tmp_path, "lamb", 1024, 10, labels=draw_labels(seed=5))
    write_results(tmp_path, [make_trial(tmp_path, "adam", 1024, 10), others])
    (one,) = read_json(dlrm, tmp_path, "--base", "adam")["differences"]
    assert (one["auc"], one["log_loss"], one["is_paired_by_rows"]) == (None, None, False)
    assert "checksums" in one["refusal"]
    text = dlrm("report", str(tmp_path), "--base", "adam").out
    assert "not paired: other evaluation rows" in text
    assert "different rows: their means are not comparable" in text


def test_a_single_seed_has_the_interval_of_its_rows_and_is_marked(tmp_path: Path, dlrm: Command) -> None:
    trial = make_trial(tmp_path, "adam", 1024, 0, "grid")
    write_results(tmp_path, [trial])
    (row,) = read_json(dlrm, tmp_path)["rows"]
    assert row["auc"]["source"] == row["log_loss"]["source"] == "rows"
    assert row["auc"]["standard_error"] == trial.metrics["auc_standard_error"]
    text = dlrm("report", str(tmp_path)).out
    assert f"{trial.metrics['auc']:.5f} ± {1.959964 * (trial.metrics['auc_standard_error'] or 0):.5f} †" in text
    assert "No result is confirmed" in text
    assert "adam: too few batches for a fit" in text


def test_seeds_alone_are_compared_without_scores_and_unequal_samples_are_marked(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed, keeps_scores=False) for seed in SEEDS]
    trials += [
        make_trial(tmp_path, "lamb", 1024, seed, keeps_scores=False, num_samples=2 * NUM_SAMPLES) for seed in SEEDS[1:]
    ]
    write_results(tmp_path, trials)
    report = read_json(dlrm, tmp_path, "--base", "adam")
    (one,) = report["differences"]
    assert (one["seeds"], one["auc"]["source"], one["is_paired_by_rows"]) == ([*SEEDS[1:]], "seeds", False)
    assert one["inequality"] == "unequal samples: 2,000,000 against 1,000,000"
    assert [group["cells"] for group in report["equal_samples"]] == [["adam, 1024"], ["lamb, 1024"]]
    text = dlrm("report", str(tmp_path), "--base", "adam").out
    assert "≠ unequal samples: 2,000,000 against 1,000,000" in text
    assert "‡: scores are not kept" in text


def test_equal_steps_are_told_from_equal_samples(tmp_path: Path, dlrm: Command) -> None:
    trials = [
        make_trial(tmp_path, "adam", batch, seed, num_samples=200 * batch) for batch in (1024, 4096) for seed in SEEDS
    ]
    write_results(tmp_path, trials)
    report = read_json(dlrm, tmp_path, "--base-cell", "1024")
    assert [group["num_steps"] for group in report["equal_steps"]] == [200.0]
    assert len(report["equal_samples"]) == 2
    (one,) = report["differences"]
    assert one["inequality"].startswith("equal steps, unequal samples: 819,200 against 204,800")


def test_results_may_lie_in_several_directories_of_one_sweep(tmp_path: Path, dlrm: Command) -> None:
    for method in ("adam", "lamb"):
        directory = tmp_path / method
        write_results(directory, [make_trial(directory, method, 1024, seed) for seed in SEEDS])
    report = read_json(dlrm, tmp_path / "adam", tmp_path / "lamb" / "results.jsonl", "--base", "adam")
    assert [one["is_paired_by_rows"] for one in report["differences"]] == [True]


def test_an_edge_of_the_grid_is_told_and_a_setting_that_diverges_with_a_seed_is_not_best(
    tmp_path: Path, dlrm: Command
) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed, "grid", rate=rate) for seed in (0, 1) for rate in (0.02, 0.05)]
    trials += [make_trial(tmp_path, "adam", 1024, 0, "grid", rate=0.011)]
    trials += [make_trial(tmp_path, "adam", 1024, 1, "grid", rate=0.011, outcome="diverged")]
    write_results(tmp_path, trials)
    (row,) = read_json(dlrm, tmp_path)["rows"]
    assert (row["settings"], row["num_diverged"]) == ({"dense_optimizer.learning_rate": 0.02}, 1)
    assert row["edges"] == []
    write_results(tmp_path, [make_trial(tmp_path, "adam", 1024, 1, "grid", rate=0.011)])
    (row,) = read_json(dlrm, tmp_path)["rows"]
    assert (row["settings"], row["num_diverged"]) == ({"dense_optimizer.learning_rate": 0.011}, 0)
    assert row["edges"] == ["lowest dense_optimizer.learning_rate"]


def test_results_that_cannot_be_used_are_refused_with_what_is_valid(tmp_path: Path, dlrm: Command) -> None:
    assert "results.jsonl: no such file (valid: the directory of a sweep" in refuse(dlrm, tmp_path)
    (tmp_path / "results.jsonl").touch()
    assert "results.jsonl: no results: no trial has ended" in refuse(dlrm, tmp_path)
    write_results(tmp_path, [make_trial(tmp_path, "adam", 1024, 0, "grid", outcome="diverged")])
    assert "no trial of the whole length is done" in refuse(dlrm, tmp_path)
    first, second = tmp_path / "first", tmp_path / "second"
    trial = make_trial(first, "adam", 1024, 0)
    write_results(first, [trial])
    write_results(second, [trial.model_copy(update={"key": "another"})])
    assert "of another sweep than" in refuse(dlrm, first, second)
    write_results(second / "more", [trial.model_copy(update={"compared": {}})])
    assert "compares no fields, not batch.global_size" in refuse(dlrm, first, second / "more")
    assert "--plots: is of the Markdown" in refuse(dlrm, first, "--plots", tmp_path)
    assert "valid: a file in an existing directory" in refuse(dlrm, first, "--output", tmp_path)
