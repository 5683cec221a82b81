"""Submissions of one owner that take long do not hold up those of others."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from service.access.principal import Role
from service.jobs.schemas import JobView
from service.jobs.service import Submission
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.databases import on_sqlite


@on_sqlite
def test_slow_submissions_of_one_owner_do_not_hold_up_another(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, is_over = api.services.jobs, threading.Event()
    submit, begun = jobs.submit, []

    def submit_slowly(submission: Submission) -> tuple[JobView, bool]:
        begun.append(submission.owner)
        if submission.owner == "slow":
            assert is_over.wait(60)
        return submit(submission)

    monkeypatch.setattr(jobs, "submit", submit_slowly)
    slow = api.make_client(api.services.keys.create("slow", Role.SUBMITTER, owner="slow").key)
    with slow, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(slow.post, "/v1/jobs", json=make_document()) for _ in range(3)]
        wait_until(lambda: begun)
        assert api.submitter.post("/v1/jobs", json=make_document()).status_code == 201
        assert begun == ["slow", "team"]
        is_over.set()
        assert [response.result().status_code for response in waiting] == [201] * 3
