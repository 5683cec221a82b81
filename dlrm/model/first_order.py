"""The first-order part of a blended model: logistic regression in plain torch."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn

from dlrm.model.bags import make_tables, pool_bags


class FirstOrder(nn.Module):
    """A weight for each dense feature and for each table row, and a bias, with their share in a model's logit.

    It is what Wide & Deep (Cheng et al. 2016, arXiv 1606.07792) and DeepFM add to a deep model, with the difference
    that it is fitted alone and not together with the deep part: two models that were trained apart make different
    errors, and their mean is often better than either.
    """

    def __init__(
        self, num_dense: int, table_rows: Mapping[str, int], pooling: Literal["sum", "mean"], share: float
    ) -> None:
        """Make the modules, with weights of 0 and tables that have none yet.

        num_dense: N. table_rows: rows by feature, in their order. share: weight of this part in the logit, from 0 to 1;
        the rest of the model has 1 - share.
        """
        super().__init__()
        self.share = share
        self.bias = nn.Parameter(torch.zeros(1))
        self.dense = nn.Parameter(torch.zeros(num_dense))
        self.tables = make_tables(table_rows, dict.fromkeys(table_rows, 1), pooling)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Map the inputs of a `PlainModel` to logits [n]."""
        logits = dense @ self.dense + self.bias
        return logits + pool_bags(self.tables.values(), ids, lengths).sum(dim=(1, 2)) if self.tables else logits
