"""Preconditioners of the dense gradient, which change it between the backward pass and the optimizer."""

from typing import Annotated, Literal

from pydantic import Field

from dlrm.config.base import FALSE_IS_NULL, Config, Positive
from dlrm.config.batch import MAX_BATCH


class PreconditionerConfig(Config):
    """A preconditioner of the dense gradient, before any of the optimizers."""

    name: Literal["kfac"] = "kfac"
    """Name of the preconditioner. kfac: the natural gradient by Kronecker factors of the Fisher matrix of each linear
    layer (Martens and Grosse 2015, arXiv 1503.05671), with stale factors (Osawa et al. 2020, SP-NGD, arXiv
    2002.06015). Not for model.architecture masknet and wukong, whose layer normalization has none."""
    damping: Positive = 1e-3
    """Value added to the eigenvalues of the Fisher matrix, in units of the squared gradient of the loss of one sample:
    the larger, the nearer to the gradient itself."""
    num_samples: int = Field(default=8192, ge=1, le=MAX_BATCH)
    """Number of samples of a batch that the factors are measured on, the first ones; all of a smaller batch."""
    max_change: float = Field(default=0.1, ge=0.0, le=1.0)
    """Largest relative change of a factor, in the Frobenius norm, after which it is computed anew less often. 0: at
    every step."""
    max_divergence: Annotated[Positive | None, FALSE_IS_NULL] = 1e-3
    """Largest Kullback-Leibler divergence between the predictions before and after a step of SGD along the
    preconditioned gradient, by the factors; longer steps are shortened to it (Ba et al. 2017, section 5). Adaptive
    optimizers mostly undo that. null or false: no limit."""
