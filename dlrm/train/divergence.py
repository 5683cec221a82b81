"""The end of a run whose numbers have left the finite."""


class DivergedError(RuntimeError):
    """Loss, gradients or predictions are not finite, and more steps would not mend it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; lower dense_optimizer.learning_rate or table_optimizer.learning_rate, or look for extreme values "
            "in the data"
        )
