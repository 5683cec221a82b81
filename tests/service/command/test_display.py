from rich.console import Console

from service.command.display import result_table


def shown(result: dict[str, float | None]) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(result_table(result))
    return capture.get()


def test_metrics_of_rows_that_all_have_one_label_are_called_undefined() -> None:
    text = shown({"auc": None, "log_loss": 0.2, "normalized_entropy": None, "calibration": 1.3})
    assert text.count("undefined: all rows have one label") == 2


def test_metrics_that_were_not_measured_are_left_out() -> None:
    assert shown({"auc": None, "log_loss": None, "num_steps": 7}).split() == ["steps", "7"]
