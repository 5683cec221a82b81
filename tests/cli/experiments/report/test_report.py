"""`dlrm report` on the results of a small sweep, and what it says of results that it cannot use."""

import html
import math
import re
import statistics
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from scipy import stats

from cli.experiments.trials.results import CurvePoint
from tests.cli.experiments.report.recorded import (
    BATCHES,
    CRITICAL_BATCH,
    NUM_SAMPLES,
    SEEDS,
    draw_labels,
    list_trials,
    make_trial,
    write_results,
)
from tests.cli.experiments.report.reports import Command, find, read_json, refuse


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a sweep."""
    directory = tmp_path_factory.mktemp("sweep")
    return write_results(directory, list_trials(directory))


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


def assert_stands_alone(drawn: str) -> None:
    """Assert that an SVG is a picture of its own: with a size, a background, axis titles, a legend, and no links."""
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(drawn)
    assert (root.attrib["role"], float(root.attrib["width"]) > 0.0) == ("img", True)
    background = root.find(f".//{svg}path")
    assert background is not None
    assert (background.attrib["style"], background.attrib["d"][:4]) == ("fill: #ffffff", "M 0 ")
    assert not re.search(r'var\(|href="(?!#)|url\((?!#)|@import|<script', drawn)
    texts = ["".join(text.itertext()) for text in root.iter(f"{svg}text")]
    assert {"samples", "batch, samples"} & {*texts}
    assert any(re.match("AUC|log-loss|gap|steps|samples to", text) for text in texts)
    assert {"adam", "lamb"} <= {*texts}


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
    assert row["sharpness"] == {}
    sharp = find(rows, "lamb", 4096)["sharpness"]
    assert {name: one["value"] for name, one in sharp.items()} == {"box_sharpness": 2.0, "hessian_eigenvalue": 40.96}


def test_a_difference_to_each_base_is_paired_by_seeds_and_by_rows(sweep: Path, dlrm: Command) -> None:
    report = read_json(dlrm, sweep, "--base", "adam", "--base", "lamb", "--base", "adam")
    differences = report["differences"]
    assert [(one["cell"], one["base"]) for one in differences] == [
        (f"{method}, {batch}", f"{base}, {batch}")
        for base, method in (("adam", "lamb"), ("lamb", "adam"))
        for batch in BATCHES
    ]
    one, reverse = differences[0], differences[len(BATCHES)]
    assert one["auc"]["value"] == pytest.approx(-reverse["auc"]["value"], abs=1e-12)
    assert (one["seeds"], one["is_paired_by_rows"], one["auc"]["source"]) == ([*SEEDS], True, "seeds and rows")
    rows = report["rows"]
    expected = find(rows, "lamb", 1024)["auc"]["value"] - find(rows, "adam", 1024)["auc"]["value"]
    assert one["auc"]["value"] == pytest.approx(expected, abs=1e-12)
    assert one["verdict"] == "higher AUC, lower log-loss"
    # The rows of both are the same, so that the difference is surer than each of the two.
    assert one["auc"]["standard_error"] < 0.7 * (make_trial(sweep, "lamb", 1024, 10).metrics["auc_standard_error"] or 0)


def test_the_base_may_be_one_cell_and_unknown_ones_are_refused(sweep: Path, dlrm: Command) -> None:
    report = read_json(dlrm, sweep, "--base", "adam", "--base-cell", "4096")
    assert {one["base"] for one in report["differences"]} == {"adam, 4096"}
    assert len(report["differences"]) == 5
    assert "--base: no method 'sgd' in the results (valid: adam, lamb)" in refuse(dlrm, sweep, "--base", "sgd")
    said = refuse(dlrm, sweep, "--base", "adam", "--base-cell", "512")
    assert '--base-cell: adam has no results at \'512\' (valid: "1024", "4096", "16384")' in said
    assert "valid: adam, lamb" in refuse(dlrm, sweep, "--base-cell", "4096")


def test_lines_that_list_the_compared_fields_in_another_order_stand_under_the_same_headings(
    tmp_path: Path, dlrm: Command
) -> None:
    trials = [make_trial(tmp_path, "adam", batch, 10, keeps_scores=False) for batch in (1024, 4096)]
    compared = [
        {"batch.global_size": 1024, "model.top_mlp": [32, 1]},
        {"model.top_mlp": [64, 1], "batch.global_size": 4096},
    ]
    pairs = zip(trials, compared, strict=True)
    write_results(tmp_path, [trial.model_copy(update={"compared": values}) for trial, values in pairs])
    text = dlrm("report", str(tmp_path)).out
    assert [line.split(" | ")[1:3] for line in text.splitlines() if line.startswith("| adam | ")][:2] == [
        ["1024", "\\[32, 1\\]"],
        ["4096", "\\[64, 1\\]"],
    ]
    report = read_json(dlrm, tmp_path, "--base", "adam", "--base-cell", "4096, [64, 1]")
    (one,) = report["differences"]
    assert one["base"] == "adam, 4096, [64, 1]"
    valid = 'valid: "1024,[32,1]", "4096,[64,1]"'
    assert valid in refuse(dlrm, tmp_path, "--base", "adam", "--base-cell", "1")


def test_the_critical_batch_is_that_of_the_curves_and_agrees_with_the_noise_scale(
    sweep: Path, tmp_path: Path, dlrm: Command
) -> None:
    report = read_json(dlrm, sweep, "--target-auc", "0.56")
    for scaling in report["scalings"]:
        assert scaling["critical_batch"] == pytest.approx(CRITICAL_BATCH, rel=1e-3)
        assert scaling["min_samples"] == pytest.approx(0.06 / 0.3 * NUM_SAMPLES, rel=1e-3)
        assert [point["samples"] for point in scaling["batches"]] == pytest.approx(
            [0.2 * NUM_SAMPLES * (1.0 + batch / CRITICAL_BATCH) for batch in BATCHES], rel=1e-4
        )
    text = dlrm("report", str(sweep), "--target-auc", "0.56", "--plots", str(tmp_path)).out
    drawn = (tmp_path / "samples-to-target.svg").read_text()
    assert all(f">{name}</text>" in drawn for name in ("adam, perfect", "lamb, fit, B_crit 6,000"))
    assert re.findall(r">([\d,]+)</text>", drawn) == ["1,024", "4,096", "16,384"]
    assert "the critical batch is about 6,000" in text
    assert (
        "7,000 (median of the runs at their end), agree within a factor of 2: they are a factor of 1.17 apart" in text
    )
    assert read_json(dlrm, sweep)["target_auc"] == pytest.approx(0.5 + 0.3 / (1.0 + 16_384 / CRITICAL_BATCH))


@pytest.mark.slow
def test_the_page_and_the_markdown_have_the_same_tables_and_sentences(
    sweep: Path, tmp_path: Path, dlrm: Command
) -> None:
    page, markdown, plots = tmp_path / "report.html", tmp_path / "report.md", tmp_path / "plots"
    command = ["report", str(sweep), "--base", "adam", "--output", str(page), "--markdown", str(markdown)]
    ended = dlrm(*command, "--plots", str(plots))
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines() == [f"wrote {path}" for path in (page, markdown, plots)]
    text, lines = page.read_text(), markdown.read_text()
    tables = read_html_tables(text)
    assert tables == read_markdown_tables(lines)
    assert [len(table) for table in tables] == [7, 4, 2, 4, 7, 3, 7, 4, 3, 37, 2]
    sentences = [html.unescape(found) for found in re.findall(r"<(?:p|li)[^>]*>(.*?)</(?:p|li)>", text)]
    plain = html.unescape(re.sub(r"\\(.)", r"\1", lines))
    assert len(sentences) > 10
    assert all(sentence in plain for sentence in sentences)
    courses = [f"{metric}-by-samples-{batch}" for metric in ("auc", "log-loss", "train-auc-gap") for batch in BATCHES]
    names = ["auc", "log-loss", "train-auc-gap", "steps-to-target", "samples-to-target", *courses]
    assert sorted(path.stem for path in plots.iterdir()) == sorted(names)
    for path in plots.iterdir():
        assert f"(plots/{path.name})" in lines
        drawn = path.read_text().strip()
        assert drawn in text
        assert_stands_alone(drawn)
    assert not re.search(r"<script|https?://(?!www\.w3\.org/(2000/svg|1999/xlink))", text)
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
    assert "Too few batches for a fit, of at least 3 with every seed at the target: adam 1." in text


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
    assert "‡: not paired by rows" in text


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


def test_directories_of_one_sweep_are_merged_trial_by_trial_and_the_later_result_counts(
    tmp_path: Path, dlrm: Command
) -> None:
    whole, chosen, confirmed = tmp_path / "whole", tmp_path / "chosen", tmp_path / "confirmed"
    trials = list_trials(whole)
    write_results(whole, trials)
    for directory, stages in ((chosen, {"grid"}), (confirmed, {"confirm"})):
        write_results(directory, [trial for trial in list_trials(directory) if trial.stage in stages])
    failed = trials[-1].model_copy(update={"outcome": "failed", "metrics": {}, "curve": [], "scores": None})
    write_results(confirmed, [failed])
    of_one = read_json(dlrm, whole, "--base", "adam")
    merged = read_json(dlrm, chosen, confirmed / "results.jsonl", "--base", "adam")
    assert merged.pop("files") != of_one.pop("files")
    assert merged == of_one


def test_plots_are_written_beside_markdown_that_goes_to_stdout(
    sweep: Path, tmp_path: Path, dlrm: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = dlrm("report", str(sweep), "--plots", "pictures of it").out
    paths = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert len(paths) == 14
    assert all((tmp_path / unquote(path)).is_file() for path in paths)
    command = ["report", str(sweep), "--markdown", "docs/report.md", "--plots", "pictures of it"]
    (tmp_path / "docs").mkdir()
    assert dlrm(*command).code == 0
    assert "(../pictures%20of%20it/auc.svg)" in (tmp_path / "docs" / "report.md").read_text()


def test_the_course_is_the_mean_over_seeds_also_where_their_evaluations_differ(tmp_path: Path, dlrm: Command) -> None:
    def curve(samples: list[int], aucs: list[float]) -> list[CurvePoint]:
        return [
            CurvePoint(step=count, num_samples=count, auc=auc, log_loss=1.0 - auc, train_auc=auc + 0.02)
            for count, auc in zip(samples, aucs, strict=True)
        ]

    one, other = (make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS[:2])
    curves = curve([100, 200, 400], [0.5, 0.6, 0.7]), curve([100, 300], [0.6, 0.8])
    write_results(
        tmp_path, [one.model_copy(update={"curve": curves[0]}), other.model_copy(update={"curve": curves[1]})]
    )
    (course,) = read_json(dlrm, tmp_path)["courses"]
    assert course["auc"] == [pytest.approx(point) for point in ([100.0, 0.55], [200.0, 0.65])]
    assert course["log_loss"] == [pytest.approx(point) for point in ([100.0, 0.45], [200.0, 0.35])]
    assert course["train_auc_gap"] == [pytest.approx(point) for point in ([100.0, 0.02], [200.0, 0.02])]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda content: content[:-40], "is not a whole NumPy file of numbers"),
        pytest.param(lambda content: content[:20], "is not a whole NumPy file of numbers", marks=pytest.mark.slow),
        pytest.param(
            lambda content: content.replace(b"}", b"("), "is not a whole NumPy file of numbers", marks=pytest.mark.slow
        ),
        pytest.param(
            lambda content: b"PK\x03\x04" + content[4:], "is not a whole NumPy file of numbers", marks=pytest.mark.slow
        ),
        pytest.param(
            lambda content: content.replace(b"'<f4'", b"'<i4'"),
            "has numbers of type int32, not float32",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda content: content.replace(b"(400,), }          ", b"(4000000000000,), }"),
            "is not a whole NumPy file",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda content: content.replace(b"(400,)", b"(399,)"),
            "has the shape (399,), not (400,)",
            marks=pytest.mark.slow,
        ),
        (lambda content: content[:-4] + struct.pack("<f", math.nan), "has NaN among its numbers"),
        (lambda content: content[:-4] + struct.pack("<f", 2.0), "has labels other than 0 and 1"),
    ],
)
def test_scores_in_a_broken_file_are_not_paired_and_the_report_names_it(
    tmp_path: Path, dlrm: Command, damage: Callable[[bytes], bytes], told: str
) -> None:
    trials = [make_trial(tmp_path, method, 1024, seed) for method in ("adam", "lamb") for seed in SEEDS]
    write_results(tmp_path, trials)
    scores = trials[1].scores
    assert scores is not None
    file = tmp_path / (scores.labels if "labels" in told else scores.logits)
    file.write_bytes(damage(file.read_bytes()))
    report = read_json(dlrm, tmp_path, "--base", "adam")
    (one,) = report["differences"]
    assert (one["is_paired_by_rows"], one["auc"]["source"]) == (False, "seeds")
    assert one["row_refusal"].startswith(f"scores/{file.name} {told}")
    assert report["broken_files"] == [one["row_refusal"]]
    text = dlrm("report", str(tmp_path), "--base", "adam").out
    assert html.unescape(re.sub(r"\\(.)", r"\1", text)).count(f"Not used: {one['row_refusal']}.") == 1


def test_scores_whose_files_are_left_behind_are_not_paired(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, method, 1024, seed) for method in ("adam", "lamb") for seed in SEEDS]
    write_results(tmp_path, trials)
    (tmp_path / "scores" / f"{trials[0].key}.npy").unlink()
    report = read_json(dlrm, tmp_path, "--base", "adam")
    assert report["differences"][0]["row_refusal"] == "files of scores are not there"
    assert report["broken_files"] == []


def test_the_cost_of_each_method_is_the_sum_over_all_its_trials(tmp_path: Path, dlrm: Command) -> None:
    trials = [make_trial(tmp_path, "adam", 1024, seed) for seed in SEEDS]
    trials.append(make_trial(tmp_path, "lamb", 1024, 10).model_copy(update={"cpu_seconds": None}))
    write_results(tmp_path, trials)
    tables = read_markdown_tables(dlrm("report", str(tmp_path)).out)
    (cost,) = [table for table in tables if table[0][-1] == "CPU seconds per million samples"]
    # Of each trial: 15 CPU seconds, 20 seconds, a million samples.
    assert cost[1:] == [
        ["adam", "3", "3,000,000", "45.0", "60.0", "15.0"],
        ["lamb", "1", "1,000,000", "-", "20.0", "-"],
    ]


def test_an_edge_of_the_grid_is_said_and_diverging_settings_are_not_best(tmp_path: Path, dlrm: Command) -> None:
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
    (tmp_path / "file").touch()
    assert "file: not a directory" in refuse(dlrm, first, "--plots", tmp_path / "file")
    assert "valid: a file in an existing directory" in refuse(dlrm, first, "--output", tmp_path)
