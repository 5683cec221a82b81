"""The wheel, with its native operators, in clean environments: without torch, with torch only, with the trainer."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dlrm.config import DataConfig
from dlrm.data.prepare.cache import find_or_prepare
from tests.dlrm.data.raw.criteo_files import criteo_lines, write_lines
from tests.dlrm.exported_model.model_factory import made_model

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | Path, **environment: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


PACKAGES = ("cli", "service", "dlrm", "sharding", "hostinfo")
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", *PACKAGES)
OPERATORS = {
    f"{library}.{kind}" for library in ("sharding/native/_tables", "dlrm/native/_dense") for kind in ("so", "json")
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return copied(tmp_path)


def copied(directory: Path) -> Path:
    """The sources, without what was built of them: a build leaves files behind."""
    copy = directory / "source"
    copy.mkdir()
    for name in SOURCES:
        run("cp", "-r", ROOT / name, copy)
    for built in OPERATORS:
        (copy / built).unlink(missing_ok=True)
    return copy


def built(source: Path, python: Path | str, kind: str = "wheel", **environment: str) -> Path:
    """The wheel or the sdist."""
    run(python, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", source.parent / "out", source, **environment)
    (archive,) = (source.parent / "out").iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(copied(tmp_path_factory.mktemp("wheel")), sys.executable)


def installed(wheel: Path, environment: Path, *locks: str) -> Path:
    """The binaries of a new environment that holds the wheel and these lock files alone."""
    run(sys.executable, "-m", "venv", environment)
    pip = environment / "bin" / "pip"
    files = [argument for lock in locks for argument in ("-r", ROOT / "requirements" / lock)]
    run(pip, "install", "-qq", "--no-deps", *files, wheel)
    return environment / "bin"


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("environment"), "service.txt")


@pytest.fixture(scope="module")
def scorer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("scorer"), "predict.txt")


@pytest.fixture(scope="module")
def trainer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("trainer"), "service.txt", "cpu.txt")


def test_the_wheel_holds_migrations_templates_and_static_files(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    data = [
        path.relative_to(ROOT).as_posix()
        for package in ("service", "cli")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix in {".html", ".css", ".js", ".svg", ".txt", ".mako", ".ini"}
    ]
    migrations = [path.relative_to(ROOT).as_posix() for path in (ROOT / "service").glob("**/migrations/**/*.py")]
    assert len(data) > 10
    assert migrations
    assert set(data) | set(migrations) <= packed
    assert {name.split("/")[0] for name in packed} <= {*PACKAGES, wheel_metadata(packed)}


def wheel_metadata(packed: set[str]) -> str:
    return next(name.split("/")[0] for name in packed if ".dist-info/" in name)


def test_the_wheel_holds_the_operators_and_not_what_they_were_built_from(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert packed >= OPERATORS
    assert not [name for name in packed if name.endswith((".cpp", ".h"))]


def test_the_sdist_holds_what_the_operators_are_built_from(source: Path) -> None:
    with tarfile.open(built(source, sys.executable, "sdist")) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    native = [*(ROOT / "sharding" / "native").rglob("*"), *(ROOT / "dlrm" / "native").rglob("*")]
    sources = {path.relative_to(ROOT).as_posix() for path in native if path.suffix in {".cpp", ".h"}}
    assert len(sources) > 5
    assert packed >= {"setup.py", *sources}
    assert not packed & OPERATORS


def test_without_a_compiler_the_package_is_built_and_says_why_its_operators_are_not(
    source: Path, tmp_path: Path
) -> None:
    wheel = built(source, sys.executable, CC="no-such-compiler", CXX="no-such-compiler")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    program = "from sharding.native import find_load_error; print(find_load_error('tables'))"
    said = run(sys.executable, "-P", "-c", program, PYTHONPATH=str(tmp_path / "installed"))
    assert "no-such-compiler" in said
    assert "pip install --no-build-isolation --no-deps -e ." in said


def test_without_torch_the_package_is_pure_python(binaries: Path, source: Path) -> None:
    run(binaries / "pip", "install", "-qq", "--no-deps", *BUILD_REQUIREMENTS)
    wheel = built(source, binaries / "python")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not OPERATORS & set(zipfile.ZipFile(wheel).namelist())


BUILD_REQUIREMENTS = [
    line
    for name in ("cpu.txt", "dev.txt")
    for line in (ROOT / "requirements" / name).read_text().splitlines()
    if line.startswith(("build==", "packaging==", "pyproject_hooks==", "setuptools=="))
]


def test_the_pinned_requirements_are_complete(binaries: Path) -> None:
    assert "No broken requirements" in run(binaries / "pip", "check")


def test_the_service_and_the_command_work_without_torch(binaries: Path) -> None:
    without_torch = "import importlib.util, service.app; assert importlib.util.find_spec('torch') is None"
    run(binaries / "python", "-c", without_torch)
    assert "dlrm submit" in run(binaries / "dlrm", "submit", "--help")


def test_trackers_are_whole_with_what_is_pinned_for_them(wheel: Path, tmp_path: Path) -> None:
    binaries = installed(wheel, tmp_path / "environment", "trackers.txt")
    assert "No broken requirements" in run(binaries / "pip", "check")
    run(binaries / "python", "-c", "import dlrm.trackers.mlflow, dlrm.trackers.process, dlrm.trackers.tensorboard")


def test_a_report_is_made_beside_the_libraries_of_experiments_alone(wheel: Path, tmp_path: Path) -> None:
    binaries = installed(wheel, tmp_path / "environment", "service.txt", "experiments.txt")
    assert "No broken requirements" in run(binaries / "pip", "check")
    results = ROOT / "benchmarks" / "evidence" / "rare_clicks" / "batches"
    run(binaries / "dlrm", "report", results, "--output", tmp_path / "report.html")
    assert "AUC by batch" in (tmp_path / "report.html").read_text()


def test_without_the_trainer_training_says_what_to_install(binaries: Path) -> None:
    ended = subprocess.run(
        [binaries / "dlrm", "train", ROOT / "examples" / "minimal.json"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "requirements/cpu.txt" in ended.stderr


def test_without_torch_scoring_says_what_to_install(binaries: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [binaries / "dlrm", "predict", tmp_path, "rows.csv"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "requirements/predict.txt" in ended.stderr
    load = "import dlrm; dlrm.load_model('model')"
    ended = subprocess.run([binaries / "python", "-c", load], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "ImportError: a model needs" in ended.stderr
    assert "pip install 'dlrm-service[predict]'" in ended.stderr


def test_with_torch_alone_a_model_loads_and_scores_as_it_does_where_it_was_trained(
    scorer: Path, tmp_path: Path
) -> None:
    assert "No broken requirements" in run(scorer / "pip", "check")
    rows = write_lines(tmp_path / "rows.tsv", criteo_lines(500))
    data = DataConfig(train=[str(rows)])
    packed = find_or_prepare(
        data, None, tmp_path / "cache", base_directory=tmp_path, num_threads=1, on_event=lambda _: None
    )
    made_model(tmp_path / "model", data, packed)
    said = run(sys.executable, "-m", "cli", "predict", tmp_path / "model", rows)
    output = tmp_path / "scores.csv"
    run(scorer / "dlrm", "predict", tmp_path / "model", rows, "--output", output)
    assert output.read_text().splitlines() == ['"probability"', *said.splitlines()]
    program = """
import importlib.util, json, sys, dlrm
from pathlib import Path
assert "torch" not in sys.modules
assert importlib.util.find_spec("torchrec") is None
assert importlib.util.find_spec("fbgemm_gpu") is None
model = dlrm.load_model(sys.argv[1])
import dlrm.native
from sharding.native import find_load_error
assert find_load_error("tables") is None
assert find_load_error("dense", Path(dlrm.native.__file__).parent) is None
print(json.dumps(model.predict({name: None for name in model.columns}).tolist()))
"""
    (alone,) = json.loads(run(scorer / "python", "-c", program, tmp_path / "model"))
    assert 0 < alone < 1
    measured = json.loads(run(scorer / "dlrm", "evaluate", tmp_path / "model", rows, "--json"))
    assert measured["num_rows"] == 500


TINY = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 20_000, "num_ids": 500}},
    "model": {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]},
    "batch": {"global_size": 2048},
    "sharding": {"plan": "table_wise"},
    "resources": {"workers_per_node": 2},
}


def test_the_trainer_trains_alike_with_its_own_operators_and_without_them_by_torchrec(
    trainer: Path, tmp_path: Path
) -> None:
    checked = subprocess.run([trainer / "pip", "check"], capture_output=True, text=True, check=False)
    # torchrec asks for the CUDA build whatever is there.
    assert checked.stdout.splitlines() == ["torchrec 1.8.0 requires fbgemm-gpu, which is not installed."]
    job = tmp_path / "job.json"
    job.write_text(json.dumps(TINY))
    (library,) = trainer.parent.glob("lib/*/site-packages/sharding/native/_tables.so")
    losses: list[list[float]] = []
    for name in ("own", "torchrec"):
        run(trainer / "dlrm", "train", job, "--run-directory", tmp_path / name)
        lines = (tmp_path / name / "attempt-1" / "spool" / "rank-0.metrics.jsonl").read_text().splitlines()
        losses.append([report["loss"] for report in map(json.loads, lines) if report["kind"] == "step"])
        library.unlink(missing_ok=True)  # the second run has to do without
    assert losses[0]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
