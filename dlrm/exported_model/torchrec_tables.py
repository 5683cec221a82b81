"""The tables of a trained model as TorchRec's unsharded collection, and back."""

from collections.abc import Mapping

import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from dlrm.exported_model.layout import SavedConfig
from dlrm.model import PlainModel, encode_table_name

POOLING = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}


def make_collection(module: PlainModel, config: SavedConfig) -> EmbeddingBagCollection:
    """Make TorchRec's collection of the tables; it shares their memory.

    Features are named as the columns, tables as in `model.safetensors`, where "." is "%2E". Raises ValueError if
    the tables are quantized.
    """
    _check_fp32(config)
    tables = [
        EmbeddingBagConfig(
            name=encode_table_name(feature),
            feature_names=[feature],
            num_embeddings=num_rows,
            embedding_dim=config.model.choose_table_dim(feature, num_rows),
            pooling=POOLING[config.model.pooling],
        )
        for feature, num_rows in config.table_rows.items()
    ]
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    weights = {_make_key(name): weight for name, weight in module.tables.state_dict().items()}
    collection.load_state_dict(weights, assign=True)
    return collection


def load_collection(module: PlainModel, config: SavedConfig, state: Mapping[str, torch.Tensor]) -> None:
    """Copy the weights of a collection's state dict into the tables. Raises ValueError if it has other tables."""
    _check_fp32(config)
    weights = module.tables.state_dict()
    expected = {_make_key(name): weight for name, weight in weights.items()}
    if different := sorted(expected.keys() ^ state.keys()):
        where = "is missing" if different[0] in expected else "is no table of the model"
        raise ValueError(f"{different[0]}: {where} (valid: {', '.join(expected)})")
    for name, weight in expected.items():
        if state[name].shape != weight.shape:
            raise ValueError(f"{name}: is {list(state[name].shape)} (valid: {list(weight.shape)}, as in the model)")
    copies = {name: state[_make_key(name)].detach().to("cpu", torch.float32, copy=True) for name in weights}
    module.tables.load_state_dict(copies, assign=True)
    module.requires_grad_(False)


def _check_fp32(config: SavedConfig) -> None:
    if config.compression is not None and config.compression.tables != "fp32":
        raise ValueError(f"its tables are {config.compression.tables} (valid: the model that it was made from)")


def _make_key(name: str) -> str:
    """Return TorchRec's key of a parameter of the tables, `<table>.weight`."""
    return f"embedding_bags.{name}"
