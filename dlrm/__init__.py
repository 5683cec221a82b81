"""The training program: configuration, data, model, optimizers, step, loop and checkpoints; and trained models.

What users import is here: `load_model`, and the clients of the service, `Client` and `AsyncClient`. Importing this
package imports neither torch nor the service; `dlrm.config` and `dlrm.record` never import torch.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrm.exported_model.model import SavedModel
    from service.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "load_model"]

_OWN_PACKAGES = ("dlrm", "sharding", "service", "cli")


def load_model(path: "Path | str") -> "SavedModel":
    """Load the trained model in the directory `path`, the `model/` of a run, ready to score rows on the CPU.

    Needs torch, but not fbgemm. Compares every file with its checksum. Raises `dlrm.exported_model.load.ModelError`, a
    ValueError naming the file at fault, and ImportError if a library is missing.
    """
    try:
        from dlrm.exported_model.load import load_saved_model
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OWN_PACKAGES:
            raise
        message = (
            f"a model needs {error.name}, which is not installed: pip install 'dlrm-service[predict]', or, for the "
            "pinned versions, pip install --no-deps -r requirements/predict.txt"
        )
        raise ImportError(message) from error
    return load_saved_model(Path(path))


def __getattr__(name: str) -> object:
    """Return a client of the service once it is asked for: the training program itself knows no service."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("service.client"), name)
