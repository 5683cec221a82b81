"""Error that ends a run once its numbers are no longer finite."""


class DivergedError(RuntimeError):
    """Error of a loss, gradients or predictions that are not finite; more steps would not repair them."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; lower dense_optimizer.learning_rate or table_optimizer.learning_rate, or check the data for "
            "extreme values"
        )
