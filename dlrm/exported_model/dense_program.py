"""Export of a model's dense part to a file that runs without this program, and comparison of both."""

import logging
import warnings
from pathlib import Path

import torch
from torch import nn

from dlrm.data.errors import DataError

TOLERANCE = 1e-5
"""Largest difference of a logit z between the file and plain torch, in units of 1 + |z|."""
_FIELD = "--export-dense"


def export_dense_part(part: nn.Module, dense: torch.Tensor, pooled: torch.Tensor, path: Path) -> float:
    """Write the dense part to `path`, a program of `torch.export` (.pt2) or ONNX (.onnx); return how far it is off.

    The program maps dense [n, N] and pooled embeddings [n, F, D] of any n to logits [n]. The inputs, of two rows or
    more, are what it is compared on: the largest difference of a logit z is returned in units of 1 + |z|. Raises
    DataError if ONNX is not installed, and if it is off by more than TOLERANCE.
    """
    rows = {0: torch.export.Dim("rows")}
    with torch.no_grad(), warnings.catch_warnings():
        # torch warns of its own use of what it has deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        expected = part(dense, pooled)
        program = torch.export.export(part, (dense, pooled), dynamic_shapes=(rows, rows))
        if path.suffix == ".pt2":
            torch.export.save(program, path)
            found = torch.export.load(path).module()(dense, pooled)
        else:
            found = _write_onnx(program, dense, pooled, path)
    difference = ((found - expected).abs() / (1 + expected.abs())).max().item()
    if not difference <= TOLERANCE:
        message = f"its logits differ by {difference:.1e} from those of the model"
        raise DataError(message, path, field=_FIELD, valid=f"at most {TOLERANCE:g}")
    return difference


def _write_onnx(
    program: torch.export.ExportedProgram, dense: torch.Tensor, pooled: torch.Tensor, path: Path
) -> torch.Tensor:
    """Write ONNX, and return the logits that its reference implementation computes."""
    try:
        import onnxscript  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
        from onnx.reference import ReferenceEvaluator  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        message = f"ONNX needs {error.name}, which is not installed: pip install onnx onnxscript"
        raise DataError(message, path, field=_FIELD, valid="a name that ends in .pt2") from None
    # It warns of packages that it does without.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    names = ["dense", "pooled"]
    onnx_program = torch.onnx.export(program, input_names=names, output_names=["logits"], verbose=False)
    assert onnx_program is not None, "the exporter of exported programs returns one"
    onnx_program.save(path)
    inputs = dict(zip(names, (dense.numpy(), pooled.numpy()), strict=True))
    return torch.from_numpy(ReferenceEvaluator(str(path)).run(None, inputs)[0])
