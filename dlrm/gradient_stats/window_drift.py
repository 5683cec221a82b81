"""Uncertainty of the noise scale that drift in the data adds, where batches draw on shuffle windows."""

from pydantic import BaseModel, ConfigDict


class WindowDrift(BaseModel):
    """Variance of the gradient between shuffle windows, and how the weight of all measurements is spread over them.

    Measurements of |G|^2 in one window err together, by what its blocks have in common. With the means of the halves
    g_1 = G + b_1 and g_2 = G + b_2, whose deviations b have a variance of 2 V each, the product has the variance

        G' S_1 G + G' S_2 G + tr(S_1 S_2) <= 4 |G|^2 V + 4 V^2

    since the covariances S have a trace of 2 V, and no eigenvalue above it. Both are equal if all drift is along G.
    Windows err independently, or, within an epoch, against each other. So the variance of the mean over windows is at
    most this bound times the sum of their squared weights.
    """

    model_config = ConfigDict(extra="forbid")

    variance: float = 0.0
    """V, weighted mean of the estimates of all measurements, which may be negative."""
    window: int | None = None
    """Number of the window of the last measurement; None if the rows are in uniformly random order."""
    weight: float = 0.0
    """Weight of the measurements in that window; the weights of all measurements add up to 1."""
    squares: float = 0.0
    """Sum of the squared weights of the windows before it."""

    def add(self, variance: float, window: int | None, weight: float) -> None:
        """Add one measurement. weight: its fraction of the mean; all earlier ones together have 1 - weight."""
        self.variance += weight * (variance - self.variance)
        self.weight *= 1 - weight
        self.squares *= (1 - weight) ** 2
        if window != self.window:
            self.squares += self.weight**2
            self.window, self.weight = window, 0.0
        self.weight += weight

    def bound_variance(self, squared_norm: float) -> float:
        """Bound the variance that drift adds to `squared_norm`, the mean of all measurements of |G|^2."""
        variance = max(self.variance, 0.0)
        return (self.squares + self.weight**2) * 4 * variance * (max(squared_norm, 0.0) + variance)
