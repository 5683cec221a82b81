"""Display of the advice on a job."""

import pytest
from rich.console import Console

from cli.render.advice import print_job_advice
from service.client import JobAdvice


@pytest.mark.parametrize("is_comparing", [False, True])
def test_advice_that_is_not_complete_yet_says_so(is_comparing: bool) -> None:
    console = Console(width=120)
    with console.capture() as capture:
        print_job_advice(console, JobAdvice(items=[], note=None, is_comparing=is_comparing))
    assert ("Other plans of the job are being compared: show it again" in capture.get()) == is_comparing
