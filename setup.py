"""Builds the native operators where torch and a C++ compiler are installed; all else is in pyproject.toml.

Without torch the package is pure Python: the service and the client need no more. An operator that cannot be built does
not fail the install: `sharding.native.find_load_error` says why, and kernels of TorchRec and torch are used instead.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

COMPILE = ["-std=c++20", "-O3", "-g0", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
if sys.platform == "linux":
    # At compile time alone: the linker adds no OpenMP of its own, so that the threads are those of torch.
    COMPILE.append("-fopenmp")
LIBRARIES = {"sharding.native._tables": "sharding/native/tables", "dlrm.native._dense": "dlrm/native"}
SHARED = "sharding/native"
"""Headers of both."""


def extensions() -> list[Extension]:
    if find_spec("torch") is None:
        return []
    return [
        Extension(
            name,
            sorted(map(str, Path(directory).glob("*.cpp"))),
            include_dirs=[SHARED],
            depends=[
                *sorted(str(path) for place in (directory, SHARED) for path in Path(place).glob("*.h")),
                "setup.py",
            ],
            language="c++",
            extra_compile_args=COMPILE,
        )
        for name, directory in LIBRARIES.items()
        if any(Path(directory).glob("*.cpp"))
    ]


class BuildOperators(build_ext):
    """Beside each library lies a record, `_name.json`: the torch it was built for, or why it could not be built."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = True

    def get_ext_filename(self, fullname: str) -> str:
        """No module of Python's, so without its version."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def build_extension(self, ext: Extension) -> None:
        record: dict[str, str] = {}
        library = Path(self.get_ext_fullpath(ext.name))
        try:
            record["torch"] = _link_with_torch(ext)
            super().build_extension(ext)
        except Exception as error:  # whatever it is, the package works without
            record["error"] = f"{type(error).__name__}: {error}"
            library.unlink(missing_ok=True)
            self.warn(f"{ext.name} could not be built, slower ones will be used: {record['error']}")
        library.parent.mkdir(parents=True, exist_ok=True)
        library.with_suffix(".json").write_text(json.dumps(record))

    def copy_extensions_to_source(self) -> None:
        """Records too, and nothing of an earlier build: where this one failed, or libraries had other names."""
        for name in LIBRARIES:
            for old in Path(*name.split(".")[:-1]).glob("_*"):
                if old.suffix in (".so", ".json"):
                    old.unlink()
        for ext in self.extensions:
            built = Path(self.build_lib, self.get_ext_filename(ext.name))
            in_source = Path(self.get_ext_filename(ext.name))
            for suffix in (".so", ".json"):
                if built.with_suffix(suffix).exists():
                    self.copy_file(str(built.with_suffix(suffix)), str(in_source.with_suffix(suffix)))


def _link_with_torch(ext: Extension) -> str:
    """Returns torch's version."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    ext.include_dirs += include_paths()
    ext.library_dirs += library_paths()
    ext.libraries += ["torch_cpu", "c10"]
    return torch.__version__


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOperators})
