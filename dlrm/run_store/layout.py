"""Names of the objects of a run: as in its run directory, and a few more.

<uri>/<run id>/spec.json  data.json  base/…
  attempt-1/outcome.json  logs/rank-0.log  spool/rank-0.metrics.jsonl
  checkpoints/step-00001200/COMPLETE             written last; without it the checkpoint does not count
    <start of the checksum of COMPLETE>/…        the files of this try to write the checkpoint
      parts/node-1.json                          checksums of the files of one of several nodes
  model/…  manifest.json                         manifest.json last
  lease/<random>.json                            the launch that may write here
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dlrm.record import COMPLETE, RunDirectory, get_checkpoint_step
from dlrm.run_store.objects import ObjectStore

CHECKPOINTS, MODEL, LEASE, PARTS = "checkpoints", "model", "lease", "parts"
MODEL_MANIFEST = "manifest.json"
RUN_FILES = ("spec.json", "data.json")
RUN_DIRECTORIES = ("base",)
_NODE_DIRECTORIES = ("logs", "spool", "profile")
"""Names of the directories of an attempt in which every node has files of its own."""
_PRIVATE = frozenset({"push.json", "nodes-token", "stop-requested", "uploads"})
"""Names in an attempt's directory that are of no use elsewhere; the first one holds a secret."""


def name_checkpoint(step: int) -> str:
    """Return the name below which the files of a checkpoint are."""
    return f"{CHECKPOINTS}/{RunDirectory(Path()).checkpoint(step).name}"


def name_content(step: int, complete: bytes) -> str:
    """Return the name below which the files of one `COMPLETE` are.

    Of two launches that write the same checkpoint, the later one perhaps after the lease of the earlier one was lost,
    neither writes over files of the other: whichever `COMPLETE` is there in the end, its files are.
    """
    return f"{name_checkpoint(step)}/{hashlib.sha256(complete).hexdigest()[:16]}"


def find_newest_attempt(names: Iterable[str]) -> int:
    """Return the largest number of an attempt that has left anything among `names`; 0 if none has."""
    texts = (name.split("/")[0].removeprefix("attempt-") for name in names if name.startswith("attempt-"))
    return max((int(text) for text in texts if text.isdecimal()), default=0)


def list_remote_steps(store: ObjectStore) -> dict[int, bool]:
    """List the steps of the checkpoints in a store, newest first, each with whether it has its `COMPLETE`.

    Raises RequestError.
    """
    steps: dict[int, bool] = {}
    for name in store.list_below(CHECKPOINTS):
        parts = name.split("/")
        if len(parts) > 2 and parts[0] == CHECKPOINTS and (step := get_checkpoint_step(Path(parts[1]))) is not None:
            steps[step] = steps.get(step, False) or parts[2:] == [COMPLETE]
    return dict(sorted(steps.items(), reverse=True))


def list_attempt_files(directory: RunDirectory, number: int, node: int = 0) -> list[Path]:
    """List the files of an attempt that a node keeps in the store: what is there once, such as its end, is node 0's."""
    root = directory.attempt(number).path
    below = [root] if node == 0 else [root / name for name in _NODE_DIRECTORIES]
    found = [path for start in below for path in start.rglob("*") if path.is_file()]
    return sorted(path for path in found if not _is_private(path.relative_to(root)))


def _is_private(path: Path) -> bool:
    return path.parts[0] in _PRIVATE or any(part.startswith(".") or part.endswith(".part") for part in path.parts)
