"""Loader of models that `dlrm.exported_model.export` wrote; it checks that their files have not changed since."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from polars.exceptions import PolarsError
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from dlrm.config import format_count
from dlrm.data.encode.encoders import Encoders
from dlrm.exported_model.assemble import assemble
from dlrm.exported_model.delta import find_position
from dlrm.exported_model.layout import CONFIG, ENCODERS, MANIFEST, METRICS, WEIGHTS, Manifest, SavedConfig
from dlrm.exported_model.model import SavedModel
from dlrm.record import FileRecord, RunDirectory

_NUM_THREADS = 4
_VALID = "the model/ directory of a run, unchanged"


class ModelError(ValueError):
    """Directory without a complete model; the text names the file at fault and what is wrong with it."""


def load_saved_model(directory: Path) -> SavedModel:
    """Load a model to the CPU, after a check of its files against their checksums. Raises ModelError."""
    if RunDirectory(directory).model.is_dir():
        raise ModelError(f"{directory}: is the directory of a run; its model is {RunDirectory(directory).model}")
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such directory (valid: {_VALID})")
    manifest = check_files(directory)
    path = directory / CONFIG
    try:
        config = SavedConfig.model_validate_json(path.read_bytes())
        path = directory / METRICS
        metrics = json.loads(path.read_bytes())
        path = directory / ENCODERS
        encoders = None if config.data.format == "synthetic" else Encoders.load(path)
        path = directory / WEIGHTS
        module = assemble(config, load_file(path))
    except (OSError, ValueError, RuntimeError, PolarsError, SafetensorError) as error:
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        raise ModelError(f"{path}: cannot be read, although its checksum is correct: {cause}") from error
    return SavedModel(directory, module, config, encoders, metrics, find_position(manifest, config))


def check_files(directory: Path) -> Manifest:
    """Return the manifest. Raises ModelError if a file of it is missing or not as it was written."""
    path = directory / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing: the model is incomplete (valid: {_VALID})") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror} (valid: {_VALID})") from None
    except ValidationError:
        raise ModelError(f"{path}: is damaged, or of another version (valid: {_VALID})") from None
    for name in (CONFIG, METRICS, WEIGHTS):
        if name not in manifest.files:
            raise ModelError(f"{path}: does not list {name} (valid: {_VALID})")
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="verify") as executor:
        list(executor.map(lambda name: _check_file(directory / name, manifest.files[name]), manifest.files))
    return manifest


def _check_file(path: Path, written: FileRecord) -> None:
    try:
        num_bytes = path.stat().st_size
        if num_bytes != written.num_bytes:
            fault = (
                f"has {format_count(num_bytes, 'byte')} instead of {written.num_bytes:,}: it was truncated or replaced"
            )
            raise ModelError(f"{path}: {fault} (valid: {_VALID})")
        if FileRecord.from_file(path) != written:
            raise ModelError(
                f"{path}: has changed since it was written: its SHA-256 differs from {MANIFEST} (valid: {_VALID})"
            )
    except FileNotFoundError:
        raise ModelError(f"{path}: is missing (valid: {_VALID})") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror} (valid: {_VALID})") from None
