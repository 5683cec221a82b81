"""The metrics of a model card."""

import pytest

from dlrm.exported_model.card_metrics import render_metrics

COURSE: dict[str, float | None] = {
    "log_loss": 0.5,
    "best_log_loss": 0.5,
    "last_log_loss": 0.6,
    "best_step": 30,
    "last_step": 40,
    "num_planned_steps": 40,
    "num_evaluations_since_best": 2,
}


@pytest.mark.parametrize(
    ("changes", "is_said"),
    [
        ({}, True),
        ({"validation_log_loss": 0.5}, False),
        # The last model was the best one, and was kept in any case.
        ({"best_step": 40, "last_log_loss": 0.5}, False),
        # The last model was asked for.
        ({"log_loss": 0.6}, False),
    ],
)
def test_the_card_says_that_the_rows_of_its_figures_chose_the_model(
    changes: dict[str, float | None], is_said: bool
) -> None:
    text = render_metrics(0.3, COURSE | changes)
    assert ("The model after step 30 of 40 is kept, which was best on these rows" in text) == is_said
