"""The wheel, in clean environments: without torch, and with torch alone."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dlrm.config import DataConfig
from dlrm.data.prepare.cache import prepared
from tests.dlrm.data.raw.criteo_files import criteo_lines, write_lines
from tests.dlrm.saved.made_models import made_model

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | Path) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves files behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "service", "dlrm", "sharding"):
        run("cp", "-r", ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source)
    return next(out.glob("*.whl"))


def installed(wheel: Path, requirements: str, environment: Path) -> Path:
    """The binaries of a new environment that holds the wheel and one lock file alone."""
    run(sys.executable, "-m", "venv", environment)
    pip = environment / "bin" / "pip"
    run(pip, "install", "-qq", "--no-deps", "-r", ROOT / "requirements" / requirements, wheel)
    return environment / "bin"


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, "service.txt", tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def scorer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, "predict.txt", tmp_path_factory.mktemp("scorer"))


def test_the_wheel_holds_migrations_templates_and_static_files(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    data = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "service").rglob("*")
        if path.is_file() and path.suffix in {".html", ".css", ".js", ".svg", ".txt", ".mako", ".ini"}
    ]
    migrations = [path.relative_to(ROOT).as_posix() for path in (ROOT / "service").glob("**/migrations/**/*.py")]
    assert len(data) > 10
    assert migrations
    assert set(data) | set(migrations) <= packed
    assert {name.split("/")[0] for name in packed} <= {"service", "dlrm", "sharding", wheel_metadata(packed)}


def wheel_metadata(packed: set[str]) -> str:
    return next(name.split("/")[0] for name in packed if ".dist-info/" in name)


def test_the_pinned_requirements_are_complete(binaries: Path) -> None:
    assert "No broken requirements" in run(binaries / "pip", "check")


def test_the_service_and_the_command_work_without_torch(binaries: Path) -> None:
    without_torch = "import importlib.util, service.app; assert importlib.util.find_spec('torch') is None"
    run(binaries / "python", "-c", without_torch)
    assert "dlrm submit" in run(binaries / "dlrm", "submit", "--help")


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
    packed = prepared(data, None, tmp_path / "cache", base_directory=tmp_path, num_threads=1, tell=lambda _: None)
    made_model(tmp_path / "model", data, packed)
    said = run(sys.executable, "-m", "service.command", "predict", tmp_path / "model", rows)
    output = tmp_path / "scores.csv"
    run(scorer / "dlrm", "predict", tmp_path / "model", rows, "--output", output)
    assert output.read_text().splitlines() == ['"probability"', *said.splitlines()]
    program = """
import importlib.util, json, sys, dlrm
assert "torch" not in sys.modules
assert importlib.util.find_spec("torchrec") is None
assert importlib.util.find_spec("fbgemm_gpu") is None
model = dlrm.load_model(sys.argv[1])
print(json.dumps(model.predict({name: None for name in model.columns}).tolist()))
"""
    (alone,) = json.loads(run(scorer / "python", "-c", program, tmp_path / "model"))
    assert 0 < alone < 1
    measured = json.loads(run(scorer / "dlrm", "evaluate", tmp_path / "model", rows, "--json"))
    assert measured["num_rows"] == 500
