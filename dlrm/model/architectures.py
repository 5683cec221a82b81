"""The dense part of each architecture, by the name that a job's document has for it."""

from collections.abc import Sequence

import torch

from dlrm.config import Architecture, ModelConfig
from dlrm.model.dcn import DCNv2
from dlrm.model.deepfm import DeepFM
from dlrm.model.dense_part import DensePart
from dlrm.model.dlrm import DLRM
from dlrm.model.finalmlp import FinalMLP
from dlrm.model.gdcn import GDCN
from dlrm.model.masknet import MaskNet
from dlrm.model.narrow_tables import NarrowTables
from dlrm.model.sequences import Sequences
from dlrm.model.wukong import Wukong
from sharding.jagged import SequenceShape

_ARCHITECTURES: dict[Architecture, type[DensePart]] = {
    "dlrm": DLRM,
    "dcn_v2": DCNv2,
    "gdcn": GDCN,
    "deepfm": DeepFM,
    "finalmlp": FinalMLP,
    "masknet": MaskNet,
    "wukong": Wukong,
}


def make_dense_part(
    config: ModelConfig,
    num_dense: int,
    num_features: int,
    seed: int,
    sequences: Sequence[SequenceShape] = (),
    table_dims: Sequence[int] | None = None,
) -> DensePart:
    """Make the dense part of a model, which maps dense [c, N] and pooled [c, F, D] to logits [c].

    num_dense: N. num_features: F, features that have a table. One of the two may be 0; then only the other features
    interact. sequences: shapes of further features, whose L positions each come after the F embeddings. table_dims:
    dimensions of the F tables; None if each has D. The initial weights are a function of `seed` and the shapes only.
    Raises ValueError if there is neither.
    """
    if num_dense == 0 and num_features == 0:
        raise ValueError("there is nothing to predict from: no dense and no categorical feature")
    generator = torch.Generator().manual_seed(seed)
    part = _ARCHITECTURES[config.architecture](config, num_dense, num_features + len(sequences), generator)
    if sequences:
        part.sequences = Sequences(config, num_features, sequences, generator)
    if table_dims is not None and any(dim < config.embedding_dim for dim in table_dims):
        part.narrow_tables = NarrowTables(config.embedding_dim, table_dims, sequences, generator)
    return part
