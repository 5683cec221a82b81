"""Readers of streams, as tests have them."""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from service.client.messages import Message, MessageDecoder
from tests.patience import PATIENCE_SECONDS


@contextmanager
def listen(client: httpx.Client, path: str, **headers: str) -> Generator[Iterator[Message]]:
    """Open a stream, and lend the iterator of its messages."""
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield _decode(response)


def _decode(response: httpx.Response) -> Iterator[Message]:
    decoder, give_up_at = MessageDecoder(), time.monotonic() + PATIENCE_SECONDS
    for part in response.iter_raw():
        assert time.monotonic() < give_up_at, "heartbeats alone"
        yield from decoder.feed(part)


def read_until(messages: Iterator[Message], name: str, **content: Any) -> list[Message]:
    """Read messages until one of this name has this content, and return them all."""
    found: list[Message] = []
    for message in messages:
        found.append(message)
        if message.name == name and content.items() <= parse(message).items():
            return found
    raise AssertionError(f"the stream ended without {name} {content}: {found}")


def parse(message: Message) -> dict[str, Any]:
    return json.loads(message.data)


def list_ids(messages: list[Message]) -> list[str]:
    """List the ids of the events among messages."""
    return [parse(message)["id"] for message in messages if message.name == "event"]
