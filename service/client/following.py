"""Operations that follow a job through its stream."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from service.client.errors import ServiceError, ServiceUnreachableError, StreamUnusableError
from service.client.jobs import JobOperations
from service.client.messages import Message
from service.client.patience import Patience
from service.schemas import JobDetails

END = "end"
MAX_EMPTY_STREAMS = 2
"""Streams one after the other without a message, after which something on the way is said to hold them back."""


class FollowingOperations(JobOperations):
    """Operations on jobs, and on their streams."""

    async def stream(
        self, job_id: str, *, last_id: str | None = None, events: bool = True, patience: Patience | None = None
    ) -> AsyncGenerator[Message]:
        """Yield the messages of a job's stream, until it has ended; each event once, however often it is cut.

        last_id: id of an event after which to begin. events: whether there are messages of events, too. patience: with
        a service that is away; ten minutes if omitted. Raises ServiceAwayError, and StreamUnusableError if something
        on the way holds streams back.
        """
        patience = patience or Patience()
        params = {"events": None if events else "false"}
        name, num_empty = "", 0
        while name != END:
            if num_empty == MAX_EMPTY_STREAMS:
                raise StreamUnusableError
            num_empty += 1
            request = partial(self._transport.open_stream, f"/v1/jobs/{job_id}/stream", params, last_id)
            # Where it is cut, or the service stops, it goes on after the last message.
            async with aclosing(await patience.repeat(request, self._transport.sleep)) as messages:
                with suppress(ServiceUnreachableError):
                    async for message in messages:
                        num_empty, name, last_id = 0, message.name, message.last_id or last_id
                        yield message

    async def follow(
        self, job_id: str, poll_seconds: float = 1.0, patience: Patience | None = None
    ) -> AsyncGenerator[JobDetails]:
        """Yield the job now, and again after each change, until it has ended.

        poll_seconds: seconds between two requests, if the service is an older one or something on the way holds its
        streams back. patience: with a service that is away, at every request; if omitted, ten minutes at every request
        but the first one. Raises ServiceAwayError if it stays away for longer.
        """
        read, sleep = partial(self.job, job_id), self._transport.sleep
        job = await (patience.repeat(read, sleep) if patience else read())
        yield job
        if job.has_ended:
            return
        patience = patience or Patience()
        fields: dict[str, Any] = {}
        try:
            async with aclosing(self.stream(job_id, events=False, patience=patience)) as messages:
                async for message in messages:
                    if message.name == "job":
                        # Each stream begins with all fields.
                        fields |= json.loads(message.data)
                        previous, job = job, JobDetails.model_validate(fields)
                        if job != previous:
                            yield job
        except (ServiceError, StreamUnusableError):
            while not job.has_ended:
                await sleep(poll_seconds)
                previous, job = job, await patience.repeat(read, sleep)
                if job != previous:
                    yield job
