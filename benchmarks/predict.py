"""Speed and memory of scoring files with a trained model: `python -m benchmarks.predict`.

Writes synthetic rows as Criteo TSV and as Parquet into a temporary directory and prepares them; exports a model of
random weights with the default MLPs, and scores the same files with `python -m dlrm.programs.predict` on all cores.
For comparison: the speed of the model alone on rows that are already encoded, on as many threads. CPU time is of all
threads, start-up included; on a shared machine it is the figure to trust.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import polars as pl
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.prepare import write_rows
from benchmarks.processes import run_program
from dlrm.config import CRITEO_SCHEMA, DataConfig, JobConfig, resolve
from dlrm.data.dataset import Dataset
from dlrm.data.open import open_data
from dlrm.exported_model.export import export_model
from dlrm.exported_model.load import load_saved_model
from dlrm.exported_model.score import make_source_pieces, score_pieces
from dlrm.model import PlainModel

_PARQUET_GROUP_ROWS = 1 << 17


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 64], help="D, embedding dimensions")
    parser.add_argument("--ids", type=int, default=100_000, help="distinct ids of the largest column")
    parser.add_argument("--directory", type=Path, help="directory of all files (default: a temporary directory)")
    arguments = parser.parse_args()
    print("| D | model, MB | loading, s | file | rows/s | a second of CPU time | model alone | peak memory, MB |")  # noqa: T201
    print("|---|---|---|---|---|---|---|---|")  # noqa: T201
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        workspace = Path(directory)
        write_rows(workspace / "rows.tsv", arguments.rows, arguments.ids)
        write_parquet(workspace / "rows.tsv", workspace / "rows.parquet")
        data = DataConfig(train=[str(workspace / "rows.tsv")])
        run_program(["dlrm.programs.prepare", "--output", str(workspace / "packed")], data.model_dump_json().encode())
        dataset = open_data(data, None, workspace / "packed")
        for dim in arguments.dims:
            model = workspace / f"model-{dim}"
            export_random(model, data, dataset, dim)
            num_bytes = sum(file.stat().st_size for file in model.rglob("*"))
            loading, alone = measure_model_alone(model, dataset)
            for name in ("rows.tsv", "rows.parquet"):
                result, cpu_seconds = run_program(
                    [
                        "dlrm.programs.predict",
                        str(model),
                        str(workspace / name),
                        "--output",
                        str(workspace / f"{name}-{dim}.parquet"),
                    ]
                )
                rate, memory = result["rows_per_second"], result["peak_memory_bytes"] / 1e6
                line = f"| {dim} | {num_bytes / 1e6:,.0f} | {loading:.2f} | {name.rpartition('.')[2]} | {rate:,.0f}"
                print(f"{line} | {arguments.rows / cpu_seconds:,.0f} | {alone:,.0f} | {memory:,.0f} |", flush=True)  # noqa: T201


def write_parquet(rows: Path, output: Path) -> None:
    """Write the TSV rows as Parquet, with ids as integers and without the label."""
    columns = pl.scan_csv(rows, has_header=False, separator="\t", new_columns=CRITEO_SCHEMA.names)
    ids = [pl.col(column.name).cast(pl.String).str.to_integer(base=16) for column in CRITEO_SCHEMA.categorical]
    columns.with_columns(ids).drop("label").collect().write_parquet(output, row_group_size=_PARQUET_GROUP_ROWS)


def export_random(directory: Path, data: DataConfig, dataset: Dataset, dim: int) -> None:
    sizes = {"embedding_dim": dim, "bottom_mlp": [512, 256, dim]}
    job = JobConfig.model_validate({"data": data, "model": sizes})
    model = PlainModel(job.model, dataset.schema.num_dense, {f.name: f.num_ids for f in dataset.schema.features})
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items() if name.startswith("tables.")}
    tables = {name.replace("tables.", "embedding_bags.", 1): torch.randn(shape) for name, shape in shapes.items()}
    checkpoint = directory.with_name(f"{directory.name}-checkpoint")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save({"tables": {"weights": tables}, "dense": model.dense.state_dict()}, checkpoint_id=checkpoint, no_dist=True)
        export_model(checkpoint, directory, resolve(job), dataset, {})


def measure_model_alone(directory: Path, dataset: Dataset) -> tuple[float, float]:
    """Measure the seconds to load the model, checksums included, and its rows per second on packed rows."""
    started = time.perf_counter()
    model = load_saved_model(directory)
    loaded = time.perf_counter()
    num_rows = sum(scored.num_rows for scored in score_pieces(model.module, make_source_pieces(dataset.train)))
    return loaded - started, num_rows / (time.perf_counter() - loaded)


if __name__ == "__main__":
    main()
