"""The contents of `meta.json`, and the checks that the splits can be trained and evaluated on."""

import platform
from collections.abc import Sequence

from dlrm.config import DataConfig, format_count
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import VALID_MEAN_WEIGHT, FeatureMeta, PackedMeta, Split, SplitMeta
from dlrm.data.prepare.fingerprint import get_library_versions
from dlrm.data.prepare.measure import SPLITS, PartMeasure, SplitMeasure
from dlrm.data.prepare.part_files import StagedRows
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.tables.table import list_versions
from dlrm.data.raw.values.positive_labels import make_positive_error

_MAX_INT32_ROWS = 2**31


Splits = dict[Split, SplitMeta]


def describe_splits(measures: Sequence[PartMeasure]) -> Splits:
    """Describe the rows of both splits, over all parts."""
    return {split: _sum_up([measure.splits[split] for measure in measures]) for split in SPLITS}


def _sum_up(measures: Sequence[SplitMeasure]) -> SplitMeta:
    num_rows = sum(measure.num_rows for measure in measures)
    sum_of_weights = sum(measure.sum_of_weights for measure in measures)
    sum_of_positive_weights = sum(measure.sum_of_positive_weights for measure in measures)
    return SplitMeta(
        num_rows=num_rows,
        num_positives=sum(measure.num_positives for measure in measures),
        mean_weight=sum_of_weights / max(num_rows, 1),
        label_rate=sum_of_positive_weights / sum_of_weights if sum_of_weights else 0.0,
    )


def describe(
    config: DataConfig, rows: StagedRows, splits: Splits, encoders: Encoders, files: Sequence[DataFile]
) -> PackedMeta:
    """Make the description of a packed directory; the sizes and checksums of its files are still missing in it."""
    features = encoders.schema_of_rows.features
    is_small = all(feature.num_ids <= _MAX_INT32_ROWS for feature in features)
    return PackedMeta(
        dense=encoders.dense_names,
        features=[FeatureMeta(name=f.name, num_ids=f.num_ids, is_multi_hot=f.is_multi_hot) for f in features],
        id_type="int32" if is_small else "int64",
        has_weights=config.raw_schema.weight is not None,
        splits=splits,
        num_bad_rows=rows.num_bad_rows,
        odd_values=rows.odd_values,
        files={},
        sources=[file.name for file in files],
        tables=list_versions(files),
        raw_format=config.format,
        versions={"python": platform.python_version()} | get_library_versions(),
    )


def check_splits(
    config: DataConfig, rows: StagedRows, splits: Splits, train: Sequence[DataFile], evaluation: Sequence[DataFile]
) -> None:
    """Raise DataError if a split has no rows or only rows of weight 0, if the mean weight of the training rows is
    outside the range that float32 can train with, or if `schema.positive` makes all labels alike."""
    _check_files(rows, train, "data.train")
    _check_files(rows, evaluation, "data.eval")
    hints: dict[Split, tuple[str, str, str]] = {
        "train": ("training", "data.train", "smaller"),
        "eval": ("evaluation", "data.eval", "larger"),
    }
    for split, (kind, field, hint) in hints.items():
        if splits[split].num_rows:
            continue
        if rows.split is None:
            raise DataError(f"no row is left for {kind}", field=field, valid="files with rows")
        raise DataError(
            f"no row is left for {kind} with {format_count(rows.num_good_rows, 'row')} at a fraction of "
            f"{config.eval_fraction}",
            field="data.eval_fraction",
            valid=f"a {hint} fraction, more rows, or files in data.eval",
        )
    if config.raw_schema.positive is not None:
        _check_positive(config.raw_schema.positive, rows, [*splits.values()], [*train, *evaluation])
        # Files of their own may spell the label otherwise.
        own: dict[Split, Sequence[DataFile]] = {"train": train, "eval": evaluation} if evaluation else {}
        for split, files in own.items():
            _check_positive(config.raw_schema.positive, rows, [splits[split]], files, hints[split][0])
    for split, (kind, _, _) in hints.items():
        if splits[split].mean_weight == 0:
            weight = config.raw_schema.weight
            raise DataError(f"every {kind} row has weight 0", field=weight, valid="some rows with a weight above 0")
    if not splits["train"].can_train:
        message = f"the training rows have a mean weight of {splits['train'].mean_weight:.3g}"
        raise DataError(message, field=config.raw_schema.weight, valid=VALID_MEAN_WEIGHT)


def _check_files(rows: StagedRows, files: Sequence[DataFile], field: str) -> None:
    """Raise DataError if there are files but none of them holds a row, not even a bad one."""
    with_rows = {part.record.file for part in rows.parts if part.record.num_rows}
    if files and not any(file.name in with_rows for file in files):
        more = f"; none of the {len(files):,} files does" if len(files) > 1 else ""
        raise DataError(f"holds no rows{more}", files[0].name, field=field, valid="files with rows")


def _check_positive(
    positive: str, rows: StagedRows, splits: Sequence[SplitMeta], files: Sequence[DataFile], kind: str = ""
) -> None:
    """Raise DataError if no row, or every row, of some splits has the positive label.

    files: files of the splits. kind: kind of their rows, such as "evaluation"; empty for all.
    """
    num_positives = sum(split.num_positives for split in splits)
    if 0 < num_positives < sum(split.num_rows for split in splits):
        return
    names = {file.name for file in files}
    values = (value for part in rows.parts if part.record.file in names for value in part.record.label_values)
    raise make_positive_error(positive, rows.schema.label, num_positives, values, kind)
