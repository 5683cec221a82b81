"""Reports of steps that a test makes up."""

from dlrm.record import StepReport


def make_step(number: int) -> StepReport:
    return StepReport(
        step=number,
        num_steps=100,
        num_samples=64 * number,
        loss=1.0 / number,
        dense_learning_rate=0.1,
        table_learning_rate=0.01,
        samples_per_second=100.0,
    )
