import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dlrm.data.threads import Workers, start_workers


def test_results_are_in_the_order_of_the_items() -> None:
    may_end = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert may_end.wait(timeout=60)
        if item == 1:
            may_end.set()
        return item

    with start_workers(2) as workers:
        assert list(workers.map(work, range(20))) == list(range(20))


def test_the_first_error_in_order_is_raised_whichever_happens_first() -> None:
    has_failed = threading.Event()

    def work(item: int) -> None:
        if item == 0:
            assert has_failed.wait(timeout=60)
            raise ValueError("first")
        if item == 1:
            has_failed.set()
            raise ValueError("second")

    with start_workers(2) as workers, pytest.raises(ValueError, match="first"):
        list(workers.map(work, range(3)))


def test_an_error_of_the_items_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("no more")

    with start_workers(2) as workers:
        results = workers.map(lambda item: item, items())
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ValueError, match="no more"):
            next(results)


def test_few_items_are_taken_before_their_results_are() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    with start_workers(2) as workers:
        results = workers.map(lambda item: item, items())
        next(results)
        assert len(taken) <= 4


def test_nothing_runs_on_once_the_results_are_not_wanted() -> None:
    is_running, may_end = threading.Event(), threading.Event()
    ended: list[int] = []

    def work(item: int) -> int:
        if item > 0:
            is_running.set()
            assert may_end.wait(timeout=60)
        ended.append(item)
        return item

    with start_workers(1) as workers:
        results = workers.map(work, range(10))
        next(results)
        assert is_running.wait(timeout=60)
        threading.Timer(0.05, may_end.set).start()
        results.close()
        assert ended == [0, 1]


def test_results_given_up_after_the_threads_have_ended_are_not_waited_for() -> None:
    may_go_on = threading.Event()
    executor = ThreadPoolExecutor(1)
    results = Workers(executor, 2).map(lambda number: number == 0 or may_go_on.wait(10), range(10))
    assert next(results)
    # One runs and one waits behind it: that one is dropped with the thread, which tells nobody.
    threading.Timer(0.05, may_go_on.set).start()
    executor.shutdown(wait=True, cancel_futures=True)
    results.close()
