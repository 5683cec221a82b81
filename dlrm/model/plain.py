"""A whole model in plain torch: the dense part and its tables in one module, for scoring anywhere."""

from collections.abc import Mapping

import torch
from torch import nn

from dlrm.config import ModelConfig
from dlrm.model.architectures import make_dense_part
from dlrm.model.bags import concatenate_columns, make_tables, place_bags, pool_bags
from dlrm.model.first_order import FirstOrder
from dlrm.model.output_map import OutputMap
from sharding.jagged import SequenceShape


class PlainModel(nn.Module):
    """The dense part and the tables by name; its scores are the sharded model's, or a blend with them, or a map of
    either."""

    def __init__(
        self,
        config: ModelConfig,
        num_dense: int,
        table_rows: Mapping[str, int],
        first_order_share: float | None = None,
        sequences: Mapping[str, SequenceShape] | None = None,
    ) -> None:
        """Make the modules, with tables that have no weights yet.

        table_rows: rows by feature, in their order. first_order_share: share of a first-order part in the logit; None
        if there is no such part. sequences: shapes of further features, which come after those.
        """
        super().__init__()
        sequences = sequences or {}
        table_dims = config.choose_table_dims(table_rows)
        self.tables = make_tables(table_rows, table_dims, config.pooling)
        self.sequences = tuple(sequences.values())
        self.dense = make_dense_part(config, num_dense, len(table_rows), 0, self.sequences, [*table_dims.values()])
        self.first_order: FirstOrder | None = None
        if first_order_share is not None:
            sizes = list(table_rows.values())
            rows = {**table_rows, **{name: sizes[shape.target] for name, shape in sequences.items()}}
            self.first_order = FirstOrder(num_dense, rows, config.pooling, first_order_share)
        self.output_map: OutputMap | None = None
        """Map of the logits to true rates; None if they are as they were trained."""
        self.num_tasks = config.num_tasks
        self.regression = [number for number, task in enumerate(config.tasks or ()) if task.kind == "regression"]
        """Numbers of the tasks whose predictions are their logits."""
        self._embedding_dim = config.embedding_dim

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Map dense [n, N], ids [sum of lengths] feature by feature and row by row, and lengths [F, n] to logits
        [n], or [n, T] of T > 1 tasks.

        The embeddings of a bag are pooled as the configuration says; an empty bag gives zeros.
        """
        logits = self.dense(dense, self.pool(ids, lengths))
        if self.first_order is not None:
            logits = torch.lerp(logits, self.first_order(dense, ids, lengths), self.first_order.share)
        return logits if self.output_map is None else self.output_map(logits)

    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """Convert logits to predictions of the same shape: probabilities of label 1, and of regression the logits."""
        probabilities = torch.sigmoid(logits)
        if self.regression:
            probabilities[:, self.regression] = logits[:, self.regression]
        return probabilities

    def pool(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Look up and pool the embeddings [n, F, D], of ids and lengths as `forward` has them.

        D is the largest dimension of a table; narrower ones have zeros at the end. With sequences it returns [n, T +
        sum of L, D], their positions last.
        """
        if not self.tables:
            return torch.empty(lengths.shape[1], 0, self._embedding_dim)
        tables = list(self.tables.values())
        if not self.sequences:
            return pool_bags(tables, ids, lengths)
        num_ids = lengths.sum(dim=1).tolist()
        of_tables, *of_sequences = ids.split([sum(num_ids[: len(tables)]), *num_ids[len(tables) :]])
        places = [
            place_bags(tables[shape.target], sequence, of_rows, shape.max_length)
            for shape, sequence, of_rows in zip(self.sequences, of_sequences, lengths[len(tables) :], strict=True)
        ]
        return concatenate_columns([pool_bags(tables, of_tables, lengths[: len(tables)]), *places])
