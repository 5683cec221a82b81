"""Model settings: architecture, layer widths of the MLPs, and pooling of lists of ids."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from dlrm.config.attention import AttentionConfig
from dlrm.config.base import FALSE_IS_NULL, Auto, Config, fill_defaults, refuse_foreign_setting
from dlrm.config.errors import invalid
from dlrm.config.schema import MAX_FURTHER_LABELS
from dlrm.config.table_dims import DIM_MULTIPLE, MAX_DIM, MIN_DIM, EmbeddingDim, TableDims, check_dims, choose_dim
from dlrm.config.tasks import TaskConfig, TaskSharingConfig, Width, check_tasks

Widths = Annotated[list[Width], Field(min_length=1, max_length=32)]

Architecture = Literal["dlrm", "dcn_v2", "gdcn", "deepfm", "finalmlp", "masknet", "wukong"]

_CROSS: dict[str, Any] = {"cross_layers": 3, "cross_rank": 512}
SETTINGS: dict[str, dict[str, Any]] = {
    "dlrm": {},
    "dcn_v2": _CROSS,
    "gdcn": _CROSS,
    "deepfm": {},
    "finalmlp": {"fusion_heads": 1, "gate_width": 64},
    "masknet": {"mask_blocks": 3, "mask_width": 400, "mask_ratio": 2.0},
    "wukong": {"wukong_layers": 3, "wukong_vectors": 16, "wukong_rank": 8, "wukong_width": 256},
}
"""Fields that only some architectures have, with their defaults; MLPerf's for cross layers."""
SETTING_FIELDS = tuple(dict.fromkeys(field for settings in SETTINGS.values() for field in settings))
NORMALIZED: frozenset[Architecture] = frozenset({"masknet", "wukong"})
"""Architectures with parameters that are not of linear layers: gains of layer normalization."""


class ModelSpec(Config):
    """The model to train, as a job document states it.

    A field of the chosen architecture that is left out or null gets its default; a field that the architecture does not
    have is null.
    """

    architecture: Architecture | Auto = "auto"
    """Architecture, by how features interact. dlrm: dot products of all pairs (Naumov et al. 2019, arXiv 1906.00091).
    dcn_v2: low-rank cross layers (Wang et al. 2021, arXiv 2008.13535). gdcn: cross layers with gates (Wang et al. 2023,
    arXiv 2311.04635). deepfm: a factorization machine beside a perceptron (Guo et al. 2017, arXiv 1703.04247).
    finalmlp: two gated perceptrons and a bilinear form (Mao et al. 2023, arXiv 2304.00902). masknet: embeddings times
    masks (Wang et al. 2021, arXiv 2102.07619). wukong: stacked factorization machines (Zhang et al. 2024, arXiv
    2403.02545). auto: dcn_v2 for few training rows, where it predicts better, and dlrm for many, where it is
    faster."""
    embedding_dim: EmbeddingDim | Auto = "auto"
    """Number of elements of one embedding row (D); a multiple of 4, which the table kernels need. auto: the last width
    of bottom_mlp if set, otherwise by the number of training rows."""
    table_dims: TableDims | None = None
    """Embedding dimensions of single tables, by the name of the feature or by a shell pattern of names, such as
    { "user_*" = 8, "*" = "auto" }: a narrower table takes less memory, and a linear layer maps its embeddings to
    embedding_dim. A name takes precedence over patterns; among patterns the first one that matches applies. auto:
    embedding_dim up to 1,000 rows, and with ten times the rows half of it each time. null: embedding_dim for all; if
    the run starts from a model, that model's."""
    pooling: Literal["sum", "mean"] = "sum"
    """Pooling of the embeddings of a list of ids; the pooled embedding of an empty list is zero."""
    bottom_mlp: Widths | Auto = "auto"
    """Output widths of the layers over the dense features; the last one must be embedding_dim. Not used without dense
    features. auto: 512, 256, embedding_dim."""
    top_mlp: Widths = Field(default=[512, 256, 1])
    """Output widths of the layers over the interactions; the last one must be 1, the logit. In finalmlp both
    perceptrons have these widths, and end before the logit."""
    cross_layers: int | None = Field(default=None, ge=1, le=32)
    """Number of consecutive cross layers in dcn_v2 and gdcn; default 3."""
    cross_rank: int | None = Field(default=None, ge=1, le=65536)
    """Rank of the matrix of a cross layer in dcn_v2 and gdcn, and of a gate's in gdcn; default 512. A larger rank than
    the width of the layer is reduced to the width: it can then express any full matrix."""
    fusion_heads: int | None = Field(default=None, ge=1, le=1024)
    """Number of parts of the perceptrons' outputs in finalmlp, with one bilinear form each; divides the last width of
    top_mlp but one; default 1."""
    gate_width: int | None = Field(default=None, ge=1, le=65536)
    """Number of hidden units of the gates in finalmlp; default 64."""
    mask_blocks: int | None = Field(default=None, ge=1, le=32)
    """Number of blocks side by side in masknet; default 3."""
    mask_width: int | None = Field(default=None, ge=1, le=65536)
    """Number of outputs of a block in masknet; default 400."""
    mask_ratio: float | None = Field(default=None, gt=0.0, le=8.0)
    """Number of hidden units of a mask in masknet, in elements of all vectors together: the reduction ratio; default
    2. Halving it halves most of the cost."""
    wukong_layers: int | None = Field(default=None, ge=1, le=32)
    """Number of layers in wukong; default 3. Each doubles the order of the interactions."""
    wukong_vectors: int | None = Field(default=None, ge=1, le=1024)
    """Number of vectors that each of the two blocks of a layer makes in wukong; default 16."""
    wukong_rank: int | None = Field(default=None, ge=1, le=1024)
    """Number of products that a factorization machine keeps for a vector in wukong; default 8. At most one for each
    vector."""
    wukong_width: int | None = Field(default=None, ge=1, le=65536)
    """Number of hidden units of the perceptron over those products in wukong; default 256."""
    attention: AttentionConfig | None = None
    """Attention over the columns of data.schema that have a `sequence`; null: din with its defaults, if there are any.
    Refused without such columns."""
    tasks: Annotated[
        Annotated[list[TaskConfig], Field(min_length=1, max_length=1 + MAX_FURTHER_LABELS)] | None, FALSE_IS_NULL
    ] = None
    """Tasks of the model, if it learns several labels; null or false: the probability of data.schema.label."""
    task_sharing: TaskSharingConfig | None = None
    """Layers between the interaction and the logits of `tasks`, and the weighting of their losses; null: a shared
    bottom with one linear layer for each task."""

    @property
    def num_tasks(self) -> int:
        return 1 if self.tasks is None else len(self.tasks)

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: SETTINGS.get(str(fields.get("architecture")), {}))

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        if self.architecture != "auto":
            refuse_foreign_setting(self, "architecture", SETTINGS)
        return self

    @model_validator(mode="after")
    def _check_tasks(self) -> Self:
        sharing = self.task_sharing
        if self.tasks is None:
            if sharing is not None:
                raise invalid("task_sharing", "is set without tasks", "null, or a list of tasks")
            return self
        check_tasks(self.tasks)
        if self.architecture == "finalmlp":
            others = " or ".join(f'"{name}"' for name in SETTINGS if name != "finalmlp")
            raise invalid("architecture", "finalmlp fuses its perceptrons in one logit, and there are tasks", others)
        if sharing is not None and sharing.num_experts is not None and len(self.top_mlp) < 2:
            raise invalid("top_mlp", "has no widths of experts before the logit", "such as [256, 1]")
        return self

    @model_validator(mode="after")
    def _check_fusion(self) -> Self:
        if self.fusion_heads is None:
            return self
        if len(self.top_mlp) < 2:
            raise invalid("top_mlp", "has no width of the perceptrons, which end before the logit", "such as [256, 1]")
        if self.top_mlp[-2] % self.fusion_heads:
            message = f"cannot cut the {self.top_mlp[-2]} outputs of a perceptron into {self.fusion_heads} equal parts"
            raise invalid("fusion_heads", message, f"a divisor of {self.top_mlp[-2]}")
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        dim, heads = self.embedding_dim, None if self.attention is None else self.attention.num_heads
        if dim != "auto" and heads is not None and dim % heads:
            message = f"cannot cut the {dim} elements of an embedding into {heads} equal parts"
            raise invalid("attention.num_heads", message, f"a divisor of {dim}")
        return self

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if self.embedding_dim == "auto" and self.bottom_mlp != "auto" and not _is_embedding_dim(self.bottom_mlp[-1]):
            raise invalid(
                "bottom_mlp",
                f"ends in {self.bottom_mlp[-1]}, which is the embedding dimension",
                f"a last width from {MIN_DIM} to {MAX_DIM} that is a multiple of {DIM_MULTIPLE}",
            )
        if "auto" not in (self.embedding_dim, self.bottom_mlp) and self.bottom_mlp[-1] != self.embedding_dim:
            raise invalid(
                "bottom_mlp",
                f"ends in {self.bottom_mlp[-1]}, but must end in embedding_dim = {self.embedding_dim}",
                f"{[*self.bottom_mlp[:-1], self.embedding_dim]}",
            )
        if self.table_dims is not None and self.embedding_dim != "auto":
            check_dims(self.table_dims, self.embedding_dim)
        if self.top_mlp[-1] != 1:
            raise invalid("top_mlp", f"ends in {self.top_mlp[-1]}, but must end in 1", f"{[*self.top_mlp[:-1], 1]}")
        return self


class ModelConfig(ModelSpec):
    """The model to train, with its architecture and dimensions decided."""

    architecture: Architecture = "dlrm"  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Architecture, by how features interact."""
    embedding_dim: EmbeddingDim = 64  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of elements of one embedding row (D)."""
    bottom_mlp: Widths = Field(default=[512, 256, 64])  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Output widths of the layers over the dense features; the last one is embedding_dim."""

    def choose_table_dim(self, name: str, num_rows: int) -> int:
        """Choose the embedding dimension of the table of one feature."""
        return choose_dim(self.table_dims, self.embedding_dim, name, num_rows)

    def choose_table_dims(self, table_rows: Mapping[str, int]) -> dict[str, int]:
        """Choose the embedding dimension of every table, by feature. table_rows: rows by feature."""
        return {name: self.choose_table_dim(name, num_rows) for name, num_rows in table_rows.items()}

    @property
    def stated_dims(self) -> Mapping[str, int | Auto]:
        """Rules of all tables, also if none is set."""
        return self.table_dims or {"*": self.embedding_dim}

    def with_table_dims(self, table_rows: Mapping[str, int]) -> "ModelConfig":
        """Return the settings with the dimension of every table stated, if any of them may differ.

        table_rows: rows by feature.
        """
        if self.table_dims is None:
            return self
        dims = self.choose_table_dims(table_rows)
        are_wide = all(dim == self.embedding_dim for dim in dims.values())
        return self.model_copy(update={"table_dims": {"*": self.embedding_dim} if are_wide else dims})


def _is_embedding_dim(width: int) -> bool:
    return MIN_DIM <= width <= MAX_DIM and width % DIM_MULTIPLE == 0


def list_architectures_with(field: str) -> list[str]:
    """List the architectures that have one of the fields `SETTING_FIELDS`."""
    return [name for name, settings in SETTINGS.items() if field in settings]
