"""The wheel, in a clean environment without torch."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that holds the wheel and `requirements/service.txt` alone."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", environment)
    pip = environment / "bin" / "pip"
    run(pip, "install", "-qq", "--no-deps", "-r", ROOT / "requirements" / "service.txt", wheel)
    return environment / "bin"


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
