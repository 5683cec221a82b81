"""Base of the operations: their transport, and lists that come in pages."""

from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from service.client.transport import Transport
from service.schemas import Page

Item = TypeVar("Item")
AnyPage = TypeVar("AnyPage", bound=Page[Any])


class BaseOperations:
    """Operations of one service."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def _list_items(self, path: str, page_type: type[Page[Item]], **params: Any) -> AsyncGenerator[Item]:
        """Yield every item of a list."""
        async for page in self._list_pages(path, page_type, **params):
            for item in page.items:
                yield item

    async def _list_pages(self, path: str, page_type: type[AnyPage], **params: Any) -> AsyncGenerator[AnyPage]:
        """Yield the pages of a list. Each is requested only once it is needed."""
        cursor: str | None = None
        while True:
            page = await self._transport.get(page_type, path, {**params, "cursor": cursor})
            yield page
            if (cursor := page.next_cursor) is None:
                return
