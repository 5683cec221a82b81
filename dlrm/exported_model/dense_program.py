"""Export of a model's dense part to a file that runs without this program, and comparison of both."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from dlrm.data.errors import DataError

TOLERANCE = 1e-5
"""Largest difference of a logit z between the file and plain torch, in units of 1 + |z|."""
_FIELD = "--export-dense"


class _NamedOutputs(nn.Module):
    """A dense part whose logits [n, T] of T tasks are T outputs [n], by the name of the task."""

    def __init__(self, part: nn.Module, tasks: Sequence[str]) -> None:
        super().__init__()
        self.part, self.tasks = part, tuple(tasks)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> dict[str, torch.Tensor]:
        """Map dense [n, N] and pooled embeddings [n, F, D] to logits [n] by task."""
        return dict(zip(self.tasks, self.part(dense, pooled).unbind(1), strict=True))


def export_dense_part(
    part: nn.Module, tasks: Sequence[str], dense: torch.Tensor, pooled: torch.Tensor, path: Path
) -> float:
    """Write the dense part to `path`, a program of `torch.export` (.pt2) or ONNX (.onnx); return how far it is off.

    The program maps dense [n, N] and pooled embeddings [n, F, D] of any n to logits [n]. Several tasks have one output
    each: the program of `torch.export` returns a dict by their names, and outputs of ONNX are named as name_outputs
    says. The inputs, of two rows or more, are what it is compared on: the largest difference of a logit z is returned
    in units of 1 + |z|. tasks: names; empty for one label. Raises DataError if ONNX is not installed or finds the file
    invalid, and if it is off by more than TOLERANCE; no file is left then.
    """
    try:
        return _write_compared(part, tasks, dense, pooled, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write_compared(
    part: nn.Module, tasks: Sequence[str], dense: torch.Tensor, pooled: torch.Tensor, path: Path
) -> float:
    rows = {0: torch.export.Dim("rows")}
    with torch.no_grad(), warnings.catch_warnings():
        # torch warns of its own use of what it has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        expected = part(dense, pooled).view(len(dense), -1)  # [n, T]
        named = part if len(tasks) < 2 else _NamedOutputs(part, tasks)
        program = torch.export.export(named, (dense, pooled), dynamic_shapes=(rows, rows))
        if path.suffix == ".pt2":
            torch.export.save(program, path)
            outputs = torch.export.load(path).module()(dense, pooled)
            found = [outputs] if len(tasks) < 2 else [outputs[name] for name in tasks]
        else:
            found = _write_onnx(program, name_outputs(tasks), dense, pooled, path)
    found = torch.stack(found, dim=1)
    difference = ((found - expected).abs() / (1 + expected.abs())).max().item()
    if not difference <= TOLERANCE:
        message = f"its logits differ by {difference:.1e} from those of the model"
        raise DataError(message, path, field=_FIELD, valid=f"at most {TOLERANCE:g}")
    return difference


def name_outputs(tasks: Sequence[str]) -> list[str]:
    """Name the outputs of ONNX: `logits`, or `logits.<task>` for each of several tasks.

    A task may have the name of an input, such as `dense`, or of a value in between, such as `val_1`. No other name in
    the graph begins with `logits.`.
    """
    return [f"logits.{task}" for task in tasks] if len(tasks) > 1 else ["logits"]


def _write_onnx(
    program: torch.export.ExportedProgram, outputs: Sequence[str], dense: torch.Tensor, pooled: torch.Tensor, path: Path
) -> list[torch.Tensor]:
    """Write ONNX, check it, and return the outputs that its reference implementation computes."""
    try:
        import onnx  # pyright: ignore[reportMissingImports]
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
        from onnx.reference import ReferenceEvaluator  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        message = f"ONNX needs {error.name}, which is not installed: pip install onnx onnxscript"
        raise DataError(message, path, field=_FIELD, valid="a name that ends in .pt2") from None
    # It warns of packages that it does without.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    names = ["dense", "pooled"]
    onnx_program = torch.onnx.export(program, input_names=names, output_names=outputs, verbose=False)
    assert onnx_program is not None, "the exporter of exported programs returns one"
    onnx_program.save(path)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        message = f"is not valid ONNX: {' '.join(str(error).split())}"
        raise DataError(message, path, field=_FIELD, valid="a name that ends in .pt2") from None
    inputs = dict(zip(names, (dense.numpy(), pooled.numpy()), strict=True))
    return [torch.from_numpy(output) for output in ReferenceEvaluator(str(path)).run(list(outputs), inputs)]
