"""Speed of training with tables of four times the memory: `python -m benchmarks.mapped_tables DIRECTORY`.

Trains on random ids with all tables in memory; then with tables in files in DIRECTORY, in a control group whose memory,
pages of files included, is a quarter of the tables'; then the same without reading ahead. Ids are all equally likely,
or the k-th row's in proportion to 1 / k, as vocabularies number frequent values first.
"""

import argparse
import json
import math
import os
import re
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from pydantic import ByteSize, TypeAdapter

from benchmarks.arguments import parse_count
from benchmarks.memory_group import MemoryGroup, make_memory_group
from benchmarks.our_steps import OurSteps
from benchmarks.training import RATES, Shape, run_on_ranks
from sharding.comm.collectives import all_gather_object, broadcast_from_rank0
from sharding.comm.mapped_file import PAGE_BYTES, MappedFile
from sharding.comm.process_groups import Ranks

Place = Literal["memory", "files", "files, none read ahead"]
NUM_PROBED, PROBED_BYTES = 40_000, 2**31
"""Random pages of a file that are read, and written, and the bytes of the file."""
MIN_STEPS = 5
RESULT = "result.json"
HEAD = "ids | tables in | samples/s | of the fastest | step, ms | read, MB | mapped, MB | peak, MB | start, s"


@dataclass(frozen=True)
class Measurement:
    """Speed of steps, and what they moved."""

    step_seconds: float
    read_bytes: float
    """Bytes that a step has read from the disk, all ranks together."""
    mapped_bytes: int
    """Bytes of the tables' files that all ranks together have mapped after the last step."""
    start_seconds: float
    """Seconds until the tables have their initial weights."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--batch", type=parse_count, default=4096, help="samples of a step over all ranks")
    parser.add_argument("--tables", type=parse_count, default=8)
    parser.add_argument("--rows", type=parse_count, default=4_150_000, help="rows of each table, of 64 columns")
    parser.add_argument("--ranks", type=parse_count, default=2)
    parser.add_argument("--memory", default="2GiB", help="memory of the processes with tables in files")
    parser.add_argument("--resident", default="960MiB", help="memory of these tables, a part of --memory")
    parser.add_argument("--seconds", type=float, default=40.0, help="duration of the measured steps, at least")
    parser.add_argument("--warm-seconds", type=float, default=40.0, help="duration of the steps before them")
    parser.add_argument("--ids", nargs="+", choices=["uniform", "zipf"], default=["uniform", "zipf"])
    parser.add_argument("--places", nargs="+", choices=get_args(Place), default=get_args(Place))
    arguments = parser.parse_args()
    print(_probe_disk(arguments.directory), flush=True)  # noqa: T201
    print(f"| {HEAD} |\n|{'---|' * 9}", flush=True)  # noqa: T201
    for ids in arguments.ids:
        fastest = 0.0
        for place in arguments.places:
            measured, peak_bytes = _measure_place(arguments, _make_shape(arguments, ids, place), place)
            speed = arguments.batch / measured.step_seconds
            fastest = max(fastest, speed)
            figures = [
                ids,
                place,
                f"{speed:,.0f}",
                f"{speed / fastest:.3f}",
                f"{1e3 * measured.step_seconds:,.0f}",
                f"{measured.read_bytes / 1e6:,.1f}",
                f"{measured.mapped_bytes / 1e6:,.0f}",
                "" if peak_bytes is None else f"{peak_bytes / 1e6:,.0f}",
                f"{measured.start_seconds:,.0f}",
            ]
            print(f"| {' | '.join(figures)} |", flush=True)  # noqa: T201


def _make_shape(arguments: argparse.Namespace, ids: Literal["uniform", "zipf"], place: Place) -> Shape:
    shape = Shape(
        batch_size=arguments.batch,
        world_size=arguments.ranks,
        num_tables=arguments.tables,
        rows_per_table=arguments.rows,
        embedding_dim=64,
        architecture="dlrm",
        precision="bf16",
        exchange_dtype="fp32",
        ids=ids,
        reduction="off",
        memory="64GiB",
    )
    return shape if place == "memory" else replace(shape, memory=arguments.memory, resident_memory=arguments.resident)


def _measure_place(arguments: argparse.Namespace, shape: Shape, place: Place) -> tuple[Measurement, int | None]:
    """Measure in processes of their own; return the peak of their memory too, if it is limited."""
    limit = None if place == "memory" else TypeAdapter(ByteSize).validate_python(arguments.memory)
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as directory,
        nullcontext() if limit is None else make_memory_group(limit) as group,
    ):
        settings = place, arguments.warm_seconds, arguments.seconds, Path(directory)
        process = get_context("spawn").Process(target=_measure_in_group, args=(group, shape, *settings))
        process.start()
        process.join()
        found = Measurement(**json.loads((Path(directory) / RESULT).read_text()))
        return found, None if group is None else group.read_peak_bytes()


def _measure_in_group(group: MemoryGroup | None, shape: Shape, *settings: Any) -> None:
    if group is not None:
        group.join()
    run_on_ranks(shape.world_size, "cpu", _measure_rank, shape, *settings)


def _measure_rank(
    ranks: Ranks, shape: Shape, place: Place, warm_seconds: float, seconds: float, directory: Path
) -> None:
    started = time.perf_counter()
    parts = shape.build_parts(ranks, directory=directory)
    start_seconds = time.perf_counter() - started
    steps = OurSteps(parts, shape.draw_batches(), RATES)
    # Every row of a batch is then read by whoever needs it, as without this part of the product.
    nothing = mock.patch.object(MappedFile, "read_ahead") if place == "files, none read ahead" else nullcontext()
    with nothing:
        pace = _time_steps(steps, MIN_STEPS, ranks) / MIN_STEPS
        _time_steps(steps, _agree(ranks, warm_seconds / pace), ranks)
        pace = _time_steps(steps, MIN_STEPS, ranks) / MIN_STEPS
        num_steps, read_bytes = _agree(ranks, seconds / pace), _count_read_bytes()
        step_seconds = _time_steps(steps, num_steps, ranks) / num_steps
        read_bytes = _count_read_bytes() - read_bytes
        mapped_bytes = _count_mapped_bytes(directory)
        steps.close()
    by_rank = all_gather_object(ranks.background_group, (read_bytes, mapped_bytes))
    if ranks.rank == 0:
        read, mapped = (sum(column) for column in zip(*by_rank, strict=True))
        found = Measurement(step_seconds, read / num_steps, mapped, start_seconds)
        (directory / RESULT).write_text(json.dumps(asdict(found)))


def _agree(ranks: Ranks, num_steps: float) -> int:
    return broadcast_from_rank0(ranks, max(MIN_STEPS, math.ceil(num_steps)))


def _time_steps(steps: OurSteps, num_steps: int, ranks: Ranks) -> float:
    dist.barrier(ranks.dense_group)
    started = time.perf_counter()
    steps.make(num_steps)
    return time.perf_counter() - started


def _count_read_bytes() -> int:
    """Count the bytes that this process has read from disks."""
    lines = (line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(dict(lines)["read_bytes"])


def _count_mapped_bytes(directory: Path) -> int:
    """Count the bytes of files in `directory` that count as this process's memory, shared ones in proportion."""
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    of_files = (mapping for mapping in mappings if str(directory) in mapping.partition("\n")[0])
    return sum(1024 * int(re.findall(r"^Pss:\s+(\d+) kB", mapping, re.MULTILINE)[0]) for mapping in of_files)


def _probe_disk(directory: Path) -> str:
    """Measure the disk: pages in random order, read in advance and one by one, and written."""
    file = MappedFile.create_in(directory, PROBED_BYTES)
    content, rng = file.view_tensor(torch.uint8, (PROBED_BYTES,)), np.random.default_rng(0)
    started = time.perf_counter()
    for part in content.split(2**26):
        part.copy_(torch.from_numpy(rng.integers(0, 256, len(part), dtype=np.uint8)))
        drop(file)
    filled = PROBED_BYTES / (time.perf_counter() - started)
    speeds: list[float] = []
    for num_pages, is_ahead in ((NUM_PROBED, True), (NUM_PROBED // 10, False)):
        drop(file)
        pages = np.unique(rng.integers(0, file.num_pages, num_pages))
        started = time.perf_counter()
        for page in pages.tolist() if is_ahead else ():
            file.read_ahead(page, 1)
        content[torch.from_numpy(pages * PAGE_BYTES)].sum()
        speeds.append(len(pages) / (time.perf_counter() - started))
    pages = np.unique(rng.integers(0, file.num_pages, NUM_PROBED))
    content[torch.from_numpy(pages * PAGE_BYTES)] = 0
    file.unmap()
    started = time.perf_counter()
    for page in pages.tolist():
        file.drop(page, 1)
    drop(file)
    written = len(pages) / (time.perf_counter() - started)
    return (
        f"the disk: {speeds[0]:,.0f} random pages of {PAGE_BYTES:,} bytes a second read ahead, {speeds[1]:,.0f} read "
        f"one by one, {written:,.0f} written; {filled / 1e6:,.0f} MB/s written in order\n"
    )


def drop(file: MappedFile) -> None:
    """Write what has changed, and drop all."""
    file.unmap()
    file.drop(0, file.num_pages)
    os.fsync(file.handle.descriptor)
    file.drop(0, file.num_pages)


if __name__ == "__main__":
    main()
