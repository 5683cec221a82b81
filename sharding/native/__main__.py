"""Says which operators cannot be used, and why: `python -m sharding.native DIRECTORY...`. Silent if all can."""

import sys
from pathlib import Path

from sharding.native.load import find_load_error

if __name__ == "__main__":
    for directory in sys.argv[1:]:
        for record in sorted(Path(directory).resolve().glob("_*.json")):
            if reason := find_load_error(record.stem.removeprefix("_"), record.parent):
                sys.stderr.write(f"{reason}\nTorchRec's kernels and torch's are used instead: correct, but slower\n")
