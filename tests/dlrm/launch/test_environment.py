"""The check of the installation, against packages as pip records them."""

import subprocess
import sys
from pathlib import Path

CHECK = "from dlrm.launch.environment import *; check_environment()"
ROOT = Path(__file__).parents[3]


def check_with(directory: Path, **versions: str) -> str:
    """What the check says where exactly these packages are installed; empty where all is well."""
    for name, version in versions.items():
        information = directory / f"{name}-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    # -S: without the packages of the environment that runs the tests.
    command = [sys.executable, "-S", "-c", CHECK]
    environment = {"PYTHONPATH": f"{ROOT}:{directory}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.stderr.strip().splitlines()[-1] if ended.returncode else ""


def test_matching_packages_are_fine(tmp_path: Path):
    (tmp_path / "cpu").mkdir()
    assert check_with(tmp_path / "cpu", torch="2.13.0+cpu", torchrec="1.8.0", fbgemm_gpu_cpu="1.8.0") == ""
    (tmp_path / "cuda").mkdir()
    assert check_with(tmp_path / "cuda", torch="2.11.0+cu130", torchrec="1.6.0", fbgemm_gpu="1.6.0") == ""


def test_both_builds_at_once_are_named_with_their_cause_and_the_command_that_repairs_it(tmp_path: Path):
    said = check_with(tmp_path, torch="2.13.0+cpu", torchrec="1.8.0", fbgemm_gpu_cpu="1.8.0", fbgemm_gpu="1.8.0")
    assert (
        "both installed and overwrite each other (torchrec requires fbgemm-gpu: install torchrec with --no-deps" in said
    )
    assert "pip uninstall -y fbgemm-gpu fbgemm-gpu-cpu && pip install --no-deps -r requirements/cpu.txt" in said


def test_cuda_tables_beside_a_cpu_torch_are_named(tmp_path: Path):
    said = check_with(tmp_path, torch="2.13.0+cpu", torchrec="1.8.0", fbgemm_gpu="1.8.0")
    assert "fbgemm-gpu is built for CUDA, but torch 2.13.0+cpu is not (torchrec requires fbgemm-gpu" in said
    assert "; to repair" in said


def test_missing_packages_are_named(tmp_path: Path):
    (tmp_path / "torch").mkdir()
    assert "needs torchrec, fbgemm-gpu or fbgemm-gpu-cpu;" in check_with(tmp_path / "torch", torch="2.13.0+cpu")
    (tmp_path / "none").mkdir()
    assert "needs torch, torchrec, fbgemm-gpu or fbgemm-gpu-cpu;" in check_with(tmp_path / "none")


def test_the_launch_process_imports_no_library_that_reads_rows_or_trains():
    program = "import sys, dlrm.launch.program; print([n for n in ('polars', 'pyarrow', 'torch') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
