"""Summary with which `dlrm sweep` ends, of a sweep whose trials have all ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.trials.results import FILE_NAME, append_result
from tests.cli.experiments.sweep.sweeps import make_end, make_plan, run_all

Command = Callable[..., Any]


@pytest.mark.parametrize(("rates", "is_chosen"), [("[0.01]", False), ("[0.01, 0.03]", True)])
def test_only_of_several_settings_the_summary_says_that_seeds_chose(
    tmp_path: Path, dlrm: Command, rates: str, is_chosen: bool
) -> None:
    plan = make_plan(tmp_path, f"seeds = [0, 1]\n[grid]\ndense_optimizer.learning_rate = {rates}\n")
    for result in run_all(plan, make_end):
        append_result(tmp_path / FILE_NAME, result)
    ended = dlrm("sweep", str(plan.sweep.path), "--output", str(tmp_path))
    assert ended.code == 0, ended.err
    text = " ".join(ended.out.split())
    assert ("the seeds that chose are the result too" in text) is is_chosen
    assert ("of the settings best on validation rows" in text) is is_chosen
    assert ("best settings" in text) is is_chosen
