"""Prepares raw files for training: `python -m dlrm.programs.prepare --output DIRECTORY < DATA.json`.

Standard input is the `data` section of a job as JSON; its relative paths count from the working directory. Standard
output reports progress, one JSON object per line:
    {"kind": "progress", "done_fraction": 0.31, "message": "reading: 1,200,000 rows, 310,000 rows/s, 12 s left"}
    {"kind": "note", "name": "bad_row", "message": "…"}
    {"kind": "result", …}     the last line
Exit codes: 0 done; 64 bad configuration or data, described in one line on standard error; 75 stopped on request
(SIGTERM or SIGINT), the same call resumes the work; any other: a failure that another attempt may avoid.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlrm.config import ConfigError, DataConfig, parse_document
from dlrm.config.data import RAW_FORMATS
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import PackedMeta, compute_checksum
from dlrm.data.prepare.fit import open_base
from dlrm.data.prepare.prepare import prepare
from dlrm.data.raw.files import find_splits
from dlrm.data.raw.odd_values import describe_odd_values
from dlrm.programs.json_lines import fail, print_event, print_line
from dlrm.record import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED
from hostinfo.fast_exit import skip_last_collection
from hostinfo.process_memory import get_peak_memory_bytes
from hostinfo.stop_signals import handle_stop_signals


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="directory to create")
    parser.add_argument("--extend", type=Path, help="packed directory or model whose ids stay unchanged")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    options = parser.parse_args(arguments)
    # Nothing to clean up: the next call resumes from what a kill leaves.
    handle_stop_signals(lambda: os._exit(EXIT_STOPPED))
    started = time.monotonic()
    try:
        base = None if options.extend is None else open_base(options.extend)
        meta = _prepare(sys.stdin.buffer.read(), options, base)
    except (DataError, ConfigError) as error:
        return fail(error)
    except OSError as error:
        return fail(f"failed; another attempt may succeed: {error}", EXIT_FAILED)
    print_line(_make_result(meta, base, time.monotonic() - started))
    return EXIT_DONE


def _prepare(document: bytes, options: argparse.Namespace, base: Encoders | None) -> PackedMeta:
    try:
        config = parse_document(DataConfig, document)
    except ConfigError as error:
        faults = [replace(fault, field=f"data.{fault.field}".rstrip(".")) for fault in error.errors]
        raise ConfigError(faults) from None
    if not config.is_raw:
        valid = " or ".join(f'"{kind}"' for kind in RAW_FORMATS)
        raise DataError(f"{config.format} needs no preparation", field="data.format", valid=valid)
    train, evaluation = find_splits(config, None, Path())
    threads = max(options.threads, 1)
    return prepare(config, train, evaluation, options.output, num_threads=threads, on_event=print_event, base=base)


def _make_result(meta: PackedMeta, base: Encoders | None, seconds: float) -> dict[str, Any]:
    base_sizes = [] if base is None else [vocabulary.num_ids for vocabulary in base.vocabularies]
    num_rows = {split: split_meta.num_rows for split, split_meta in meta.splits.items()}
    return {
        "kind": "result",
        "num_rows": num_rows,
        "num_bad_rows": meta.num_bad_rows,
        "odd_values": describe_odd_values(meta.odd_values),
        "table_sizes": {feature.name: feature.num_ids for feature in meta.features},
        "num_added": {f.name: f.num_ids - before for f, before in zip(meta.features, base_sizes, strict=False)},
        "checksum": compute_checksum(meta),
        "seconds": seconds,
        "rows_per_second": sum(num_rows.values()) / seconds,
        "peak_memory_bytes": get_peak_memory_bytes(),
    }


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
