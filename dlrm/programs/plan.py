"""Plans a job: `python -m dlrm.programs.plan`. Imports no torch.

One JSON document on stdin, `{"resolved": ResolvedJob, "run_directory": path or null, "limits": Limits or null}`; on
stdout one line of JSON:

{"kind": "result", "sizes_from": where table sizes are from, "plan": a `sharding.planner.report.Answer`, "notes": what
 stands between it and a run on this machine, "part_of_term": the part of a run's clock that each term of its step
 counts to, "refusal": a `PlanError` where there is none, "unknown_sizes": why not, where nobody knows how large tables
 are, "seconds": it took}

Bad input is one line on stderr and exit code 64, and so is a plan beyond the limits, which are there for a service.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

from dlrm.config import ResolvedJob
from dlrm.data.errors import DataError
from dlrm.planning.here import Here, find_here, notes_of
from dlrm.planning.limits import limit_memory
from dlrm.planning.request import planned
from dlrm.planning.sizes import Sizes, UnknownSizesError, sizes_of
from dlrm.record import EXIT_BAD_INPUT, PreparedData, RunDirectory
from sharding.planner import PlanError
from sharding.planner.report import PART_OF_TERM, PlanReport, make_plan_report

NO_TRAINER = (
    "the trainer is not installed here, and reads how large tables are: pip install --no-deps -r requirements/cpu.txt "
    "(cuda.txt for NVIDIA GPUs), from the source tree"
)

MOST_USED = 0.97
"""Of a GPU's memory, beyond which a plan says so."""


class Limits(TypedDict):
    """Of one plan."""

    memory_bytes: int
    """Beyond what the program has when it knows the tables."""
    answer_bytes: int
    """Of the line that it writes."""


class TooLargeError(ValueError):
    """A plan beyond the limits."""

    def __init__(self, num_ranks: int, num_tables: int) -> None:
        super().__init__(
            f"resources: a plan of {num_ranks:,} ranks and {num_tables:,} tables takes more memory than a service "
            "gives to one (valid: fewer ranks or tables; `dlrm plan` on the document has no limit)"
        )


def line_of_job(resolved: ResolvedJob, run_directory: RunDirectory | None, limits: Limits | None = None) -> str:
    """The result line. Raises DataError, TooLargeError and ImportError."""
    started = time.perf_counter()
    told: dict[str, Any] = dict.fromkeys(("sizes_from", "plan", "notes", "part_of_term", "refusal", "unknown_sizes"))
    try:
        sizes = _sizes(resolved, run_directory)
    except UnknownSizesError as error:
        return _line({**told, "unknown_sizes": str(error)}, started)
    # Before memory is limited: what is measured takes its own.
    here = find_here(resolved.job)
    too_large = TooLargeError(resolved.job.resources.world_size, len(sizes.tables))
    if limits is not None:
        limit_memory(limits["memory_bytes"])
    try:
        line = _line({**told, **_planned(resolved, sizes, here)}, started)
    except MemoryError:
        raise too_large from None
    if limits is not None and len(line) > limits["answer_bytes"]:
        raise too_large
    return line


def _line(told: dict[str, Any], started: float) -> str:
    return json.dumps({"kind": "result", **told, "seconds": time.perf_counter() - started}, allow_nan=False)


def _planned(resolved: ResolvedJob, sizes: Sizes, here: Here) -> dict[str, Any]:
    try:
        request, plan = planned(resolved, sizes.tables, sizes.num_dense, here)
    except PlanError as error:
        return {"sizes_from": sizes.source, "refusal": error.as_dict()}
    answer = make_plan_report(request, plan)
    return {
        "sizes_from": sizes.source,
        "plan": answer.as_json(),
        "notes": [*notes_of(resolved.job, here), *_headroom(answer)],
        "part_of_term": PART_OF_TERM,
    }


def _headroom(answer: PlanReport) -> list[str]:
    """A note where nearly all of a GPU's memory is used."""
    used = answer.largest_bytes / answer.memory_bytes
    if answer.topology.device == "cpu" or used <= MOST_USED:
        return []
    return [
        f"sharding.topology.gpu_memory: the fullest GPU uses {100 * used:.1f} % of it, and what the allocator and NCCL "
        "take beyond what is counted has to find room in the rest; a size lower than the GPU's keeps some free"
    ]


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
        line = line_of_job(ResolvedJob.model_validate(asked["resolved"]), run_directory, asked["limits"])
    except (DataError, TooLargeError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return EXIT_BAD_INPUT
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("dlrm", "sharding"):
            raise
        sys.stderr.write(NO_TRAINER + "\n")
        return EXIT_BAD_INPUT
    sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
