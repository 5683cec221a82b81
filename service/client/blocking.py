"""Coroutines that block instead of waiting, so that each operation is written once, for both clients."""

from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, and return its result. It needs no event loop, and may run within one."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError(f"{coroutine} waits for an event loop")


def iterate(items: AsyncGenerator[Item]) -> Iterator[Item]:
    """Yield what a generator yields that never waits. It is closed with this one."""
    try:
        while True:
            try:
                item = run(anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())
