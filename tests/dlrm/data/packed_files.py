"""Packed directories written from arrays, without a preparation."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.encode.encoders import DenseEncoder, Encoders
from dlrm.data.encode.vocabulary import HashedVocabulary
from dlrm.data.packed.layout import (
    DENSE,
    ENCODERS,
    IDS,
    LABELS,
    META,
    WEIGHTS,
    FeatureMeta,
    FileMeta,
    PackedMeta,
    Split,
    SplitMeta,
    get_bag_offsets_name,
    get_bag_values_name,
)
from dlrm.data.prepare.cache import find_or_prepare
from dlrm.data.rows import Feature, Rows
from sharding.jagged import JaggedIds

ONE_ID = Feature("site", 1000)
LISTS = Feature("tags", 50, is_multi_hot=True)
MORE_LISTS = Feature("genres", 9, is_multi_hot=True)
OTHER_ID = Feature("country", 200)
FEATURES = (LISTS, ONE_ID, MORE_LISTS, OTHER_ID)


def random_rows(
    num_rows: int, features: Sequence[Feature] = FEATURES, num_dense: int = 3, *, seed: int = 0, weighted: bool = True
) -> Rows:
    random = np.random.default_rng(seed)
    lengths = np.empty((len(features), num_rows), dtype=np.int32)
    for of_feature, feature in zip(lengths, features, strict=True):
        of_feature[:] = random.integers(0, 5, num_rows) if feature.is_multi_hot else 1
    values = [random.integers(0, f.num_ids, n) for f, n in zip(features, lengths.sum(axis=1), strict=True)]
    dense = random.normal(size=(num_rows, num_dense)).astype(np.float32)
    labels = (random.random(num_rows) < 0.5).astype(np.float32)
    weights = random.random(num_rows).astype(np.float32) if weighted else None
    ids = np.concatenate([np.empty(0, dtype=np.int64), *values])
    return Rows(labels, dense, JaggedIds(ids, lengths), weights)


def write_packed(
    directory: Path, train: Rows, evaluation: Rows, features: Sequence[Feature] = FEATURES, id_type: str = "int32"
) -> PackedMeta:
    """What a preparation of these rows would leave."""
    num_dense = train.dense.shape[1]
    encoders = _encoders(num_dense, features)
    encoders.save(directory / ENCODERS)
    splits: dict[Split, SplitMeta] = {}
    for split, rows in (("train", train), ("eval", evaluation)):
        (directory / split).mkdir()
        for name, array in _arrays(rows, features, np.dtype(id_type)).items():
            array.tofile(directory / split / name)
        weights = np.ones(rows.num_rows) if rows.weights is None else rows.weights.astype(np.float64)
        splits[split] = SplitMeta(
            num_rows=rows.num_rows,
            num_positives=int(rows.labels.sum()),
            mean_weight=float(weights.mean()) if rows.num_rows else 0.0,
            label_rate=float(weights @ rows.labels / weights.sum()) if weights.sum() else 0.0,
        )
    files = {
        str(path.relative_to(directory)): FileMeta(
            num_bytes=path.stat().st_size, sha256=hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    meta = PackedMeta(
        dense=encoders.dense_names,
        features=[FeatureMeta(name=f.name, num_ids=f.num_ids, is_multi_hot=f.is_multi_hot) for f in features],
        id_type="int32" if id_type == "int32" else "int64",
        has_weights=train.weights is not None,
        splits=splits,
        num_bad_rows=0,
        files=files,
        sources=["rows.csv"],
        versions={},
    )
    (directory / META).write_text(meta.model_dump_json())
    return meta


def _encoders(num_dense: int, features: Sequence[Feature]) -> Encoders:
    schema = SchemaConfig(
        dense=[DenseColumn(name=f"x{number}", transform="none") for number in range(num_dense)],
        categorical=[CategoricalColumn(name=f.name, type="integer", multi_hot=f.is_multi_hot) for f in features],
    )
    vocabularies = [HashedVocabulary.for_column(place, feature.num_ids) for place, feature in enumerate(features)]
    return Encoders(schema, [DenseEncoder(column=column) for column in schema.dense], vocabularies)


def _arrays(rows: Rows, features: Sequence[Feature], id_dtype: np.dtype) -> dict[str, np.ndarray]:
    by_feature = np.split(rows.ids.values, np.cumsum(rows.ids.lengths.sum(axis=1)))[:-1]
    single = [ids for ids, feature in zip(by_feature, features, strict=True) if not feature.is_multi_hot]
    arrays = {
        LABELS: rows.labels,
        DENSE: rows.dense,
        IDS: np.stack(single, axis=1).astype(id_dtype) if single else np.empty((rows.num_rows, 0), dtype=id_dtype),
    }
    if rows.weights is not None:
        arrays[WEIGHTS] = rows.weights
    for place, feature in enumerate(features):
        if feature.is_multi_hot:
            arrays[get_bag_values_name(place)] = by_feature[place].astype(id_dtype)
            arrays[get_bag_offsets_name(place)] = np.cumsum([0, *rows.ids.lengths[place]], dtype=np.int64)
    return arrays


def prepare_in_cache(config: DataConfig, directory: Path) -> Path:
    """Prepare the files of `config`, and return their entry in a cache below `directory`."""
    return find_or_prepare(
        config, None, directory / "cache", base_directory=directory, num_threads=1, on_event=lambda _: None
    )
