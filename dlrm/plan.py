"""Plans a job: `python -m dlrm.plan`. Imports no torch.

One JSON document on stdin, `{"resolved": ResolvedJob, "run_directory": path or null}`; on stdout one line of JSON:

{"kind": "result", "sizes_from": where table sizes are from, "plan": a `sharding.plan.answer.Answer`, "refusal": a
 `PlanError` where there is none, "unknown_sizes": why not, where nobody knows how large tables are, "seconds": it took}

Bad input is one line on stderr and exit code 64.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from dlrm.config import ResolvedJob
from dlrm.data.errors import DataError
from dlrm.planning.request import planned
from dlrm.planning.sizes import Sizes, UnknownSizesError, sizes_of
from dlrm.record import EXIT_BAD_INPUT, PreparedData, RunDirectory
from sharding.plan import PlanError
from sharding.plan.answer import answer_of
from sharding.plan.check import faults_of

NO_TRAINER = (
    "the trainer is not installed here, and reads how large tables are: pip install --no-deps -r requirements/cpu.txt "
    "(cuda.txt for NVIDIA GPUs), from the source tree"
)


def plan_of_job(resolved: ResolvedJob, run_directory: RunDirectory | None) -> dict[str, Any]:
    """The result line. Raises DataError and ImportError."""
    told: dict[str, Any] = dict.fromkeys(("sizes_from", "plan", "refusal", "unknown_sizes"))
    started = time.perf_counter()
    told |= _told(resolved, run_directory)
    return {"kind": "result", **told, "seconds": time.perf_counter() - started}


def _told(resolved: ResolvedJob, run_directory: RunDirectory | None) -> dict[str, Any]:
    try:
        sizes = _sizes(resolved, run_directory)
    except UnknownSizesError as error:
        return {"unknown_sizes": str(error)}
    try:
        request, plan = planned(resolved, sizes.tables, sizes.num_dense)
    except PlanError as error:
        return {"sizes_from": sizes.source, "refusal": error.as_dict()}
    faults = faults_of(request, plan)
    assert not faults, f"a plan that is not sound was made: {faults}"
    return {"sizes_from": sizes.source, "plan": answer_of(request, plan).as_json()}


def _sizes(resolved: ResolvedJob, run_directory: RunDirectory | None) -> Sizes:
    try:
        return sizes_of(resolved, _prepared(run_directory))
    except UnknownSizesError:
        found = _prepared_before(resolved)
        if found is None:
            raise
        return sizes_of(resolved, found)


def _prepared(run_directory: RunDirectory | None) -> Path | None:
    """Rows that a run has had prepared."""
    prepared = run_directory and PreparedData.read(run_directory.data)
    return Path(prepared.directory) if prepared else None


def _prepared_before(resolved: ResolvedJob) -> Path | None:
    """The same rows from the cache that jobs share; a warm start adds rows to its own."""
    if resolved.data_cache is None or resolved.job.run.warm_start is not None:
        return None
    from dlrm.data.prepare.cache import prepared_before

    cache = Path(resolved.data_cache)
    return prepared_before(resolved.job.data, resolved.data_roots, cache, base_directory=Path())


def main() -> int:
    asked = json.load(sys.stdin)
    run_directory = asked["run_directory"] and RunDirectory(Path(asked["run_directory"]))
    try:
        told = plan_of_job(ResolvedJob.model_validate(asked["resolved"]), run_directory)
    except DataError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return EXIT_BAD_INPUT
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("dlrm", "sharding"):
            raise
        sys.stderr.write(NO_TRAINER + "\n")
        return EXIT_BAD_INPUT
    sys.stdout.write(json.dumps(told, allow_nan=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
