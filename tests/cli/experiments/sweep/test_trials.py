"""Trials and their keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.sweep.document import read_sweep
from cli.experiments.sweep.trial import make_trial
from cli.experiments.trials.results import read_results
from cli.experiments.trials.runner import Trial
from dlrm.config import PRESETS
from tests.cli.experiments.sweep.sweeps import JOB, read_document

ONE = '[methods.job]\n[grid]\n"dense_optimizer.learning_rate" = [0.01, 0.1]\n'

PRESET = 'preset = "large_batch"\n'
EVIDENCE = Path(__file__).parents[4] / "benchmarks" / "evidence"


def make(directory: Path, text: str = ONE, job: str = JOB, rate: float = 0.01, seed: int = 0, **given: Any) -> Trial:
    sweep = read_document(directory, text, job)
    return make_trial(sweep, "grid", "job", {}, {"dense_optimizer.learning_rate": rate}, seed, **given)


@pytest.mark.parametrize(
    "job",
    [
        JOB + 'name = "other"\nlabels = { team = "ads" }\nsharding = { plan = "row_wise" }\n',
        JOB.replace("workers_per_node = 1", 'workers_per_node = 2, memory = "1GiB"'),
        JOB.replace("epochs = 1", 'epochs = 1, checkpoint_every_seconds = 5, yardsticks = "all", keep_scores = false'),
        JOB.replace("global_size = 1024", "global_size = 1024, chunk_size = 64"),
        # Defaults, stated.
        JOB.replace("epochs = 1", 'epochs = 1.0, keep_model = "best"') + 'precision = "fp32"\n',
    ],
    ids=["names and plan", "resources", "files", "chunk", "defaults"],
)
def test_where_and_how_a_job_runs_is_no_part_of_its_key(tmp_path: Path, job: str) -> None:
    assert make(tmp_path, job=job).key == make(tmp_path).key


def test_whatever_changes_what_is_learned_or_measured_changes_the_key(tmp_path: Path) -> None:
    changed = [
        make(tmp_path),
        make(tmp_path, rate=0.1),
        make(tmp_path, seed=1),
        make(tmp_path, fraction=0.5),
        make(tmp_path, job=JOB.replace("num_ids = 50", "num_ids = 60")),
        make(tmp_path, job=JOB.replace("epochs = 1", "epochs = 1, eval_every_fraction = 0.5")),
        make(tmp_path, job=JOB.replace("epochs = 1", "epochs = 1, patience = 3")),
        make(tmp_path, job=JOB + 'precision = "bf16"\n'),
    ]
    assert len({trial.key for trial in changed}) == len(changed)


def test_a_label_names_two_rates_by_their_whole_fields(tmp_path: Path) -> None:
    sweep = read_document(tmp_path, ONE)
    one = make_trial(sweep, "grid", "job", {}, {"dense_optimizer.learning_rate": 0.01}, seed=3)
    two = make_trial(
        sweep, "grid", "job", {}, {"dense_optimizer.learning_rate": 0.01, "table_optimizer.learning_rate": 0.1}, seed=3
    )
    assert one.label == "job, learning_rate 0.01, seed 3"
    assert two.label == "job, dense_optimizer.learning_rate 0.01, table_optimizer.learning_rate 0.1, seed 3"


def test_a_preset_is_part_of_the_key_only_if_it_chooses_the_batch(
    tmp_path: Path,
) -> None:
    values = {field: entry.value for field, entry in PRESETS["large_batch"].values.items()}
    text = "[methods.job]\n" + "".join(f"{field} = {json.dumps(value)}\n" for field, value in values.items())
    is_open = 'global_size = "auto"'
    keys = {
        (preset, batch): make_trial(read_document(tmp_path, text, job + preset), "grid", "job", {}, {}, 0).key
        for batch, job in {"open": JOB.replace("global_size = 1024", is_open), "stated": JOB}.items()
        for preset in ("", PRESET)
    }
    assert keys["", "stated"] == keys[PRESET, "stated"]
    assert keys["", "open"] != keys[PRESET, "open"]
    # It decides the architecture too, where that is open.
    undecided = JOB.replace('architecture = "dlrm", ', "")
    documents = [read_document(tmp_path, text, undecided + preset) for preset in ("", PRESET)]
    assert len({make_trial(document, "grid", "job", {}, {}, 0).key for document in documents}) == 2


def test_committed_results_have_the_keys_of_their_trials() -> None:
    # In one test: a sweep that runs here meanwhile would give the processes of the tests different parameters.
    files = sorted(EVIDENCE.rglob("results.jsonl"))
    assert files
    for file in files:
        sweep = read_sweep(file.with_name("sweep.toml"))
        for result in read_results(file):
            given = (result.stage, result.method, result.compared, result.settings, result.seed, result.fraction)
            assert make_trial(sweep, *given).key == result.key, (file, given)


def test_trials_that_are_to_differ_in_how_they_run_have_keys_of_their_own(tmp_path: Path) -> None:
    sweep = read_document(tmp_path, '[methods.job]\n[grid]\n"batch.chunk_size" = [64, 128]\n')
    one, other = (make_trial(sweep, "grid", "job", {}, {"batch.chunk_size": size}, 0) for size in (64, 128))
    assert one.key != other.key


def test_a_trial_is_chosen_by_held_out_rows_and_not_by_evaluation_rows(tmp_path: Path) -> None:
    run = make(tmp_path, job=JOB.replace("epochs = 1", "epochs = 1, target_auc = 0.6")).spec.run
    assert (run.validation_fraction, run.blend, run.keep_scores, run.target_auc) == (0.1, "none", True, 1.0)
    stated = make(tmp_path, job=JOB.replace("epochs = 1", "epochs = 1, validation_fraction = 0.25")).spec.run
    assert stated.validation_fraction == 0.25


def test_a_method_changes_the_job_then_the_values_that_are_tried(tmp_path: Path) -> None:
    text = '[set]\nrun.epochs = 2\n[methods.job]\ndense_optimizer.name = "sgd"\n' + ONE.partition("\n")[2]
    spec = make(tmp_path, text, rate=0.1, seed=7).spec
    optimizer = spec.dense_optimizer
    assert (optimizer.name, optimizer.learning_rate, spec.run.epochs, spec.run.seed) == ("sgd", 0.1, 2, 7)
    assert make(tmp_path, text, fraction=1 / 3).spec.run.epochs == pytest.approx(2 / 3, rel=1e-5)
