"""The chosen use of a column, with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlrm.data.inspect.judge.prediction import Prediction

Settings = dict[str, str | bool | int]
"""Fields of `DenseColumn` or `CategoricalColumn` other than the name."""
LEAK_AUC = 0.95
"""AUC of a single column from which it may hold the label itself."""


@dataclass(frozen=True)
class Choice:
    """The chosen uses of one column: a number, one or more categorical features, both, or none."""

    name: str
    why: str
    dense: Settings | None = None
    categorical: list[Settings] = field(default_factory=list[Settings])
    otherwise: str = ""
    """Another possible use, in words; empty if there is none."""
    auc: float | None = None
    """AUC of the label predicted by this column alone; None if it was not measured."""
    warning: str = ""
    """Fact that the user should know before training, worded for the console to print after the column's name."""

    @property
    def is_left_out(self) -> bool:
        return self.dense is None and not self.categorical


def leave_out(name: str, why: str, otherwise: str = "", auc: float | None = None) -> Choice:
    """Choose to leave a column out."""
    return Choice(name, why, otherwise=otherwise, auc=auc)


def format_missing(missing_share: float) -> str:
    return f", {missing_share:.1%} missing" if missing_share else ""


def format_aucs(predictions: Mapping[str, Prediction | None]) -> str:
    """Format the AUCs of the measured uses, such as `: AUC as ids 0.612, as ranges 0.531`; empty if there are none.

    predictions: by use, such as `as ids`, or by an empty text if there is only one use; None if a use was not measured.
    """
    parts = [f"{use} {found.auc:.3f}".lstrip() for use, found in predictions.items() if found is not None]
    return f": AUC {', '.join(parts)}" if parts else ""
