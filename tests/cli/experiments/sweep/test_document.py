"""The document of a sweep, and what is said of one that cannot run."""

from pathlib import Path

import pytest

from cli.experiments.sweep.document import read_sweep
from cli.experiments.sweep.trial import check_all
from cli.local.errors import BadInputError
from tests.cli.experiments.sweep.sweeps import JOB, read_document

GRID = '[grid]\n"dense_optimizer.learning_rate" = [0.01, 0.1]\n'


def refuse(directory: Path, text: str, job: str = JOB) -> list[str]:
    with pytest.raises(BadInputError) as refused:
        check_all(read_document(directory, text, job))
    return [*refused.value.lines]


def test_methods_with_different_numbers_of_settings_are_refused_with_the_counts(tmp_path: Path) -> None:
    more = "[methods.plain]\n[methods.tuned.grid]\n'table_optimizer.learning_rate' = [0.1, 0.2, 0.3]\n" + GRID
    (line,) = refuse(tmp_path, more)
    assert line.startswith(f"{tmp_path / 'batches.toml'}: methods: ")
    assert "plain 2, tuned 6" in line
    assert "allow_unequal_effort" in line
    check_all(read_document(tmp_path, f"allow_unequal_effort = true\n{more}"))


def test_a_grid_of_a_method_replaces_the_values_of_the_common_one(tmp_path: Path) -> None:
    rates = "[methods.adam]\n[methods.sgd.grid]\ndense_optimizer.learning_rate = [0.1, 0.3]\n"
    sweep = read_document(tmp_path, rates + GRID)
    assert sweep.config.methods["sgd"].grid == {"dense_optimizer.learning_rate": [0.1, 0.3]}
    check_all(sweep)


@pytest.mark.parametrize(
    "fields",
    ['"dense_optimizer.name" = "sgd"', 'dense_optimizer.name = "sgd"', 'dense_optimizer = { name = "sgd" }'],
    ids=["quoted", "dotted", "table"],
)
def test_a_field_may_be_written_as_a_path_or_as_a_table(tmp_path: Path, fields: str) -> None:
    sweep = read_document(tmp_path, f"[methods.sgd]\n{fields}\nvariance_reduction = {{}}\n")
    assert sweep.config.methods["sgd"].fields == {"dense_optimizer.name": "sgd", "variance_reduction": {}}


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        ("seed = 3\n", "seed", "did you mean 'seeds'"),
        ("seeds = [-1]\n", "seeds.0", "-1"),
        ("seeds = [1, 2]\nconfirm_seeds = [2, 3]\n", "confirm_seeds", "has 2 of seeds too"),
        ("seeds = [1, 1]\n", "seeds", "twice"),
        ('compare = ["batch.global_size"]\n' + GRID, "compare", "valid: dense_optimizer.learning_rate"),
        ('[set]\n"run.seed" = 1\n', "set.run.seed", "confirm_seeds set it"),
        ('[grid]\n"run.epochs" = [1, 1.0]\n', "grid.run.epochs", "twice"),
        ('[grid]\n"run.epochs" = []\n', "grid.run.epochs", "should be a list of values to try, got []"),
        ("[methods.a.grid]\nrun.epochs = 3\n", "methods.a.grid.run.epochs", "got 3 (valid: […])"),
        ("[methods.a]\ndense_optimizer.learning_rate = 1.0\n" + GRID, "methods.a.dense_optimizer", "would replace it"),
        (
            "[methods.grid]\ndense_optimizer.learning_rate = 1.0\n" + GRID,
            "methods.grid.dense_optimizer",
            "would replace it",
        ),
        ("[methods.a]\nmoments = false\n[grid]\nmoments.every = [1, 2]\n", "methods.a.moments", "is false, which"),
        ("[set]\nmoments = false\n[grid]\nmoments.every = [1, 2]\n", "set.moments", "or no values of its fields"),
        ("[halving]\nrungs = 9\n", "halving.rungs", "less than or equal to 3"),
        (
            "[set]\ndense_optimizer.learning_rate = 0.5\n" + GRID,
            "set.dense_optimizer.learning_rate",
            "would replace it",
        ),
        (
            "[set]\ndense_optimizer.learning_rate = 0.5\n[grid]\n"
            'dense_optimizer = [{ name = "adam" }, { name = "lamb" }]\n',
            "set.dense_optimizer.learning_rate",
            "the values of dense_optimizer in the grid would replace it",
        ),
        (
            "[set]\nvariance_reduction.gamma = 0.2\n[methods.vr]\nvariance_reduction = {}\n",
            "methods.vr.variance_reduction",
            "would leave out variance_reduction.gamma of [set]",
        ),
        (
            "[set]\nmodel = {}\n",
            "set.model",
            "leave out model.architecture, model.bottom_mlp, model.top_mlp of the job",
        ),
        (
            '[grid]\n"dense_optimizer" = [{ name = "adam" }]\n"dense_optimizer.name" = ["sgd", "lamb"]\n',
            "grid.dense_optimizer.name",
            "the values of dense_optimizer in the grid would replace it",
        ),
        (
            '[methods.lamb]\ndense_optimizer.name = "lamb"\n"dense_optimizer.name" = "sgd"\n',
            "methods.lamb.dense_optimizer.name",
            "is written twice, in two spellings (valid: once)",
        ),
        ('[set]\nrun.epochs = 1\n"run.epochs" = 2\n', "set.run.epochs", "is written twice"),
        (
            GRID + "dense_optimizer.learning_rate = [0.3, 0.4]\n",
            "grid.dense_optimizer.learning_rate",
            "is written twice",
        ),
        ('[grid]\n"run" = [{ seed = 3 }, { seed = 4 }]\n', "grid.run", "would replace all of run"),
        (
            '[methods.a.grid]\ntable_optimizer = [{}, { name = "rowwise_adagrad" }]\n',
            "methods.a",
            "has 2 settings, of which only 1 are different job documents",
        ),
    ],
)
def test_a_fault_names_the_file_the_field_and_what_is_valid(tmp_path: Path, text: str, field: str, words: str) -> None:
    (line,) = refuse(tmp_path, text)
    assert line.startswith(f"{tmp_path / 'batches.toml'}: {field}")
    assert words in line


def test_a_date_which_no_field_has_is_a_fault_with_its_field(tmp_path: Path) -> None:
    lines = refuse(tmp_path, '[grid]\n"dense_optimizer.learning_rate" = [2020-01-01, 0.1]\n')
    assert 'dense_optimizer.learning_rate = "2020-01-01": dense_optimizer.learning_rate: ' in lines[0]


def test_a_method_may_try_values_of_what_the_others_have_from_set(tmp_path: Path) -> None:
    text = "allow_unequal_effort = true\n[set]\ndense_optimizer.learning_rate = 0.5\n[methods.a]\n[methods.b.grid]\n"
    check_all(read_document(tmp_path, text + '"dense_optimizer.learning_rate" = [0.1, 0.2]\n'))


def test_a_setting_unfit_for_the_job_names_method_value_and_field(tmp_path: Path) -> None:
    text = '[methods.adam]\ndense_optimizer.name = "adam"\n[grid]\n"batch.global_size" = [1024, 0]\n'
    lines = refuse(tmp_path, text)
    assert "methods.adam, batch.global_size = 0: batch.global_size: " in lines[0]
    assert all("1024" not in line for line in lines)
    (line,) = refuse(tmp_path, "[set]\n'dense_optimizer.learning_rte' = 1\n")
    assert "dense_optimizer.learning_rte: unknown field; did you mean" in line


def test_a_value_for_all_is_said_once_of_methods_that_keep_it(tmp_path: Path) -> None:
    off = "[set]\nmoments = false\n"
    exact = '[methods.exact]\nmoments.estimator = "exact"\n[methods.exact.grid]\nmoments.every = [1, 2]\n'
    check_all(read_document(tmp_path, off + exact))
    (line,) = refuse(tmp_path, off + "[methods.a]\n[methods.b]\nrun.epochs = 2\n[grid]\nmoments.every = [1, 2]\n")
    assert "set.moments: is false, which the values of moments.every in the grid would replace" in line


def test_methods_with_the_same_job_document_are_refused(tmp_path: Path) -> None:
    # 0 is the weight decay of a job that states none.
    text = "[methods.plain]\n[methods.decayed]\ndense_optimizer.weight_decay = 0.0\n" + GRID
    (line,) = refuse(tmp_path, text)
    assert "methods.decayed: has the same job documents as methods.plain, so that there is nothing to compare" in line
    check_all(read_document(tmp_path, text.replace("0.0\n", "0.1\n")))
    # Of what a faulty method would be nothing is known.
    grids = {"plain": [1024, 0], "other": [1024, 512]}
    faulty = "".join(f"[methods.{method}.grid]\nbatch.global_size = {sizes}\n" for method, sizes in grids.items())
    assert all("plain" in line for line in refuse(tmp_path, faulty))


def test_a_choice_needs_validation_rows(tmp_path: Path) -> None:
    lines = refuse(tmp_path, "[set]\nrun.validation_fraction = 0.0\n" + GRID)
    assert len(lines) == 2
    assert all("the evaluation rows would choose settings" in line for line in lines)
    (line,) = refuse(tmp_path, "[set]\nrun.validation_fraction = 0.0\n")
    assert "would choose the model that a run keeps" in line
    check_all(read_document(tmp_path, '[set]\nrun = { validation_fraction = 0.0, keep_model = "last" }\n'))


def test_halving_with_a_preset_needs_a_batch_that_shorter_runs_have_too(tmp_path: Path) -> None:
    halving, is_open = "[halving]\n" + GRID, JOB.replace("global_size = 1024", 'global_size = "auto"')
    preset = 'preset = "large_batch"\n'
    (line,) = refuse(tmp_path, halving, is_open + preset)
    assert "batch.global_size: the preset large_batch would choose smaller batches" in line
    assert "valid: a number, in the job or in [set]" in line
    for text, job in ((GRID, is_open + preset), (halving, is_open), (halving, JOB + preset)):
        check_all(read_document(tmp_path, text, job))


def test_the_job_may_be_a_file_beside_that_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "small.toml").write_text('[data]\nformat = "synthetic"\n')
    sweep = read_sweep(_write(tmp_path, 'job = "jobs/small.toml"'))
    assert sweep.job == {"data": {"format": "synthetic"}}
    assert sweep.config.name == "batches"
    with pytest.raises(BadInputError, match=r"batches.toml: job: no file: .*missing.toml"):
        read_sweep(_write(tmp_path, 'job = "missing.toml"'))
    with pytest.raises(BadInputError, match=r"batches.toml: job.batch.size: unknown field"):
        read_sweep(_write(tmp_path, 'job = { data = { format = "synthetic" }, batch = { size = 3 } }'))


def _write(directory: Path, text: str) -> Path:
    path = directory / "batches.toml"
    path.write_text(text)
    return path
