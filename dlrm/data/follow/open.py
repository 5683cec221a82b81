"""Open the rows of a growing set of files, as far as they were prepared."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.data.dataset import Dataset
from dlrm.data.follow.ledger import Ledger, Piece
from dlrm.data.follow.rows import JoinedRows
from dlrm.data.packed.layout import PackedMeta, open_packed_meta
from dlrm.data.packed.open import open_encoders, read_reused
from dlrm.data.packed.rows import PackedRows, allow_open_files
from dlrm.data.rows import RowSource
from dlrm.data.split import FromRow


def open_followed(last_piece: Path, window_rows: int, num_threads: int) -> Dataset:
    """Open the pieces beside `last_piece`, whose encoders apply to all rows. Raises DataError.

    Mean weight and label rate are of the first piece, so that they do not depend on how many others there are.
    """
    directory = last_piece.parent
    ledger = Ledger.open(directory)
    pieces = [piece for piece in ledger.pieces if (directory / piece.name).exists()]
    metas = [open_packed_meta(directory / piece.name) for piece in pieces]
    allow_open_files(sum(len(meta.files) for meta in metas))
    sources = [
        PackedRows(directory / piece.name, "train", meta, num_threads)
        for piece, meta in zip(pieces, metas, strict=True)
    ]
    train: RowSource = JoinedRows(sources, pieces[0].start_row)
    last, first = pieces[-1], ledger.pieces[0]
    return Dataset(
        schema=train.schema,
        train=train,
        evaluation=FromRow(train, last.num_rows, first=last.start_row),
        train_label_rate=first.label_rate,
        encoders=open_encoders(last_piece),
        has_weights=metas[-1].has_weights,
        mean_train_weight=first.mean_weight,
        window_rows=metas[-1].window_rows,
        reused=_join_reused(directory, pieces, metas, window_rows),
        directory=last_piece,
        growing=ledger.get_log(directory),
    )


def _join_reused(
    directory: Path, pieces: Sequence[Piece], metas: Sequence[PackedMeta], window_rows: int
) -> dict[int, NDArray[np.int64]]:
    """Join which rows change hands; windows are numbered through all pieces."""
    found: dict[int, list[NDArray[np.int64]]] = {}
    for piece, meta in zip(pieces, metas, strict=True):
        for feature, reused in read_reused(directory / piece.name, meta).items():
            shift = np.array([piece.start_row // window_rows, 0])
            found.setdefault(feature, []).append(reused + shift)
    return {feature: np.concatenate(parts) for feature, parts in found.items()}
