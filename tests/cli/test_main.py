"""Where `dlrm` begins."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_an_interrupt_while_it_imports_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    ended = subprocess.run(
        [sys.executable, "-m", "cli", "jobs"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_the_command_imports_nothing_heavy_before_it_takes_interrupts() -> None:
    begin = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["dlrm"].partition(":")[0]
    program = f"import sys, {begin}; print('typer' in sys.modules or 'pydantic' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout == "False\n"


def test_the_version_is_one_line_and_needs_no_torch_to_be_imported() -> None:
    program = "import sys; from cli.__main__ import main\ntry:\n  main()\nfinally:\n  print('torch' in sys.modules)"
    command = [sys.executable, "-c", program, "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    first, imported = ended.stdout.splitlines()
    assert first.startswith(f"dlrm {version}, torch ") or first == f"dlrm {version}, without torch"
    assert imported == "False"
