"""Checks what a build has installed: `python check.py cpu|cuda`. Exits with a message where an image would be wrong.

An install goes on without the native operators where they cannot be compiled, and an index of packages may hand out
another kind of torch than the one that is meant. In an image both are errors.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from sharding.native import find_load_error

OPERATORS = {"tables": "sharding.native", "dense": "dlrm.native"}
"""Names of the libraries of operators, each with the package that holds it."""


def main() -> None:
    """Check the kind of torch, and load every library of operators."""
    (kind,) = sys.argv[1:]
    if find_spec("cli.main") is None:
        sys.exit("the command line is missing: copy cli/ into the build")
    if (torch.version.cuda is not None) != (kind == "cuda"):
        hint = "pass --build-arg PIP_EXTRA_INDEX_URL=URL with an index of CPU builds" if kind == "cpu" else "use PyPI's"
        sys.exit(f"torch {torch.__version__} is not a build for {kind}: {hint}")
    for name, package in OPERATORS.items():
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        if error := find_load_error(name, Path(spec.origin).parent):
            sys.exit(error)


if __name__ == "__main__":
    main()
