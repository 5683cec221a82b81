"""The command `dlrm compress`: a trained model in fewer bytes, and what that costs."""

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from cli.commands.attempt import run_to_success
from cli.commands.options import Format, LineOfJson, NegativeSampling
from cli.commands.scoring import find_trained_model, require_scorer, run_scorer
from cli.local.console import say
from cli.local.errors import BadInputError
from cli.local.retraining import create_retraining
from cli.local.run_store import local_model
from cli.render.tables import make_table, print_result
from dlrm.record import RunDirectory


class TableFormat(StrEnum):
    """Format of embedding tables."""

    FP32 = "fp32"
    INT8 = "int8"
    INT4 = "int4"


def compress(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RUN", help="A run or its model/ directory; also a model in a bucket.", show_default=False
        ),
    ],
    tables: Annotated[
        list[TableFormat] | None,
        typer.Option(help="Format of the embedding tables; repeatable.", show_default="int8"),
    ] = None,
    dense: Annotated[Literal["fp32", "int8"], typer.Option(help="Format of the matrices of the dense part.")] = "fp32",
    prune: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="Share of the elements of these matrices to set to zero.")
    ] = 0.0,
    retrain_fraction: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1.0,
            help="Train on after --prune, for this share of the samples of RUN.",
            show_default="no training",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "--out", "-o", help="Model directory to write; must not exist yet.", show_default="only measure"
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILES",
            help="Labelled files, or a prepared directory, to measure on; repeatable.",
            show_default="the rows that the run held out",
        ),
    ] = None,
    negative_sampling: NegativeSampling = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows to measure on.", show_default="all")] = None,
    export_dense: Annotated[
        Path | None,
        typer.Option(help="File to write the compressed dense part to, .pt2 or .onnx.", show_default=False),
    ] = None,
    file_format: Format = None,
    as_json: LineOfJson = False,
) -> None:
    """Compress a trained model: tables in int8 or int4, dense matrices in int8, pruned.

    The original stays as it is. Size, share of zeros in the dense matrices,
    AUC, log-loss and scoring speed of one core (in CPU time) are printed for
    the original and for each format:

        dlrm compress runs/demo-20260101-120000 --tables int8 --tables int4

    With --output the compressed model is written, which `dlrm predict`, `dlrm
    evaluate` and `dlrm.load_model` read as they read every model:

        dlrm compress runs/demo/model --tables int4 --dense int8 --prune 0.3 -o small

    With --retrain-fraction the pruned model is also trained on, as a run in
    ./runs with these elements held at zero, and compressed then:

        dlrm compress runs/demo --tables fp32 --prune 0.3 --retrain-fraction 0.05

    That helps if pruning has cost much. If it has cost little, a second pass
    over rows that the tables have learnt costs more: `pruning` in the job
    document prunes in the first one.

    --export-dense writes the dense part alone, from dense features and pooled
    embeddings to logits, as a program of torch.export or as ONNX.

    Exit code: 0 compressed, 2 no such model or bad data, 1 any other failure.
    """
    formats = tables or [TableFormat.INT8]
    if output is not None and len(formats) > 1:
        raise BadInputError("--output: valid with one --tables; without it, several are compared")
    for option, path in (("--output", output), ("--export-dense", export_dense)):
        if path is not None and path.exists():
            raise BadInputError(f"{option} {path}: already exists (valid: a new name)")
    if export_dense is not None and export_dense.suffix not in (".pt2", ".onnx"):
        raise BadInputError(f"--export-dense {export_dense}: has an unknown format (valid: a name in .pt2 or .onnx)")
    if export_dense is not None and export_dense.suffix == ".onnx" and find_spec("onnxscript") is None:
        raise BadInputError(
            f"--export-dense {export_dense}: ONNX is not installed (valid: pip install onnx onnxscript)"
        )
    if retrain_fraction is not None and not prune:
        raise BadInputError("--retrain-fraction: valid with --prune; nothing else is lost that training brings back")
    if retrain_fraction is not None and not RunDirectory(Path(model)).spec.is_file():
        message = f"{model}: not the directory of a run on this machine, which --retrain-fraction trains on"
        raise BadInputError(f"{message} (valid: a run, such as runs/demo; not its model/, nor a model in a bucket)")
    require_scorer()
    options = ["--dense", dense, "--prune", str(prune), *(f"--tables={name}" for name in formats)]
    given = {
        "--output": output,
        "--export-dense": export_dense,
        "--format": file_format,
        "--negative-sampling": negative_sampling,
        "--rows": rows,
    }
    options += [f"{name}={value}" for name, value in given.items() if value is not None]
    if retrain_fraction is not None:
        started = create_retraining(Path(model), prune, retrain_fraction)
        say(f"trains on with {100 * prune:g} % pruned: {started.directory.path}")
        run_to_success(started)
        options.append(f"--retrained={started.directory.model}")
    with local_model(model) as directory:
        source = find_trained_model(directory, model)
        result = run_scorer("dlrm.programs.compress", [*options, "--", str(source), *(data or [])])
    if output is not None:
        result["output"] = str(output)
    print_result(result, _make_table(result["models"]), as_json=as_json)
    for path in filter(None, (output, export_dense)):
        say(f"wrote {path}")


def _make_table(models: Mapping[str, Mapping[str, Any]]) -> Table:
    table = make_table("model", "size (MB)", "zeros", "AUC", "log-loss", "rows/s")
    for name, measured in models.items():
        size, auc = f"{measured['weight_bytes'] / 1e6:,.3f}", measured["auc"]
        speed = f"{measured['rows_per_second']:,.0f}"
        scores = "-" if auc is None else f"{auc:.5f}", f"{measured['log_loss']:.5f}"
        table.add_row(name, size, f"{measured['zeros']:.1%}", *scores, speed)
    return table
