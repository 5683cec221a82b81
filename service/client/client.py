"""The client: one method for each operation of the service."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from service.client.blocking import iterate, run
from service.client.connection import find_connection
from service.client.download import Downloader, OnProgress
from service.client.operations import Operations
from service.client.patience import Patience
from service.client.transport import Transport
from service.client.waiting import OnSilence
from service.client.wire import BlockingWire

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _blocking(
    method: Callable[Concatenate[Operations, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Client", Parameters], Result]:
    """Make a method that returns what an operation returns."""

    @wraps(method)
    def call(client: "Client", *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return run(method(client._operations, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


def _iterated(
    method: Callable[Concatenate[Operations, Parameters], AsyncGenerator[Result]],
) -> Callable[Concatenate["Client", Parameters], Iterator[Result]]:
    """Make a method that yields what an operation yields."""

    @wraps(method)
    def call(client: "Client", *args: Parameters.args, **kwargs: Parameters.kwargs) -> Iterator[Result]:
        return iterate(method(client._operations, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class Client:
    """Client of one service. Every method may raise ServiceError and ServiceUnreachableError."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        on_silence: OnSilence | None = None,
    ) -> None:
        """Connect to a service. Raises ServiceUnknownError if its URL or API key cannot be found, or is invalid.

        url, api_key: if omitted, they are found as described in `service.client.connection`. timeout_seconds:
        longest time that a request waits for an answer, over all its tries. on_silence: called once for each request
        that has waited for some seconds, with the URL and the seconds left to wait.
        """
        connection = find_connection(url, api_key)
        self.url = connection.url
        self._transport = Transport(connection.url, BlockingWire(connection), timeout_seconds, on_silence)
        self._operations = Operations(self._transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        run(self._transport.close())

    submit = _blocking(Operations.submit)
    plan = _blocking(Operations.plan)
    jobs = _iterated(Operations.jobs)
    labels = _iterated(Operations.labels)
    job = _blocking(Operations.job)
    me = _blocking(Operations.me)
    advice = _blocking(Operations.advice)
    document = _blocking(Operations.document)
    edit = _blocking(Operations.edit)
    compare = _blocking(Operations.compare)
    cancel = _blocking(Operations.cancel)
    pause = _blocking(Operations.pause)
    resume = _blocking(Operations.resume)
    hold = _blocking(Operations.hold)
    release = _blocking(Operations.release)
    restart = _blocking(Operations.restart)
    delete = _blocking(Operations.delete)
    events = _iterated(Operations.events)
    attempts = _iterated(Operations.attempts)
    checkpoints = _iterated(Operations.checkpoints)
    metrics = _iterated(Operations.metrics)
    curves = _blocking(Operations.curves)
    logs = _blocking(Operations.logs)
    search_logs = _iterated(Operations.search_logs)
    artifacts = _iterated(Operations.artifacts)
    capacity = _blocking(Operations.capacity)
    keys = _iterated(Operations.keys)
    create_key = _blocking(Operations.create_key)
    revoke_key = _blocking(Operations.revoke_key)
    create_login_link = _blocking(Operations.create_login_link)
    schedules = _iterated(Operations.schedules)
    schedule = _blocking(Operations.schedule)
    create_schedule = _blocking(Operations.create_schedule)
    change_schedule = _blocking(Operations.change_schedule)
    run_schedule = _blocking(Operations.run_schedule)
    delete_schedule = _blocking(Operations.delete_schedule)
    webhooks = _iterated(Operations.webhooks)
    create_webhook = _blocking(Operations.create_webhook)
    delete_webhook = _blocking(Operations.delete_webhook)
    test_webhook = _blocking(Operations.test_webhook)
    audit = _iterated(Operations.audit)
    retention = _blocking(Operations.retention)
    stream = _iterated(Operations.stream)
    follow = _iterated(Operations.follow)

    def download(
        self,
        job_id: str,
        name: str = "model",
        to: Path | str | None = None,
        *,
        overwrite: bool = False,
        on_progress: OnProgress = lambda _, __: None,
        patience: Patience | None = None,
    ) -> Path:
        """Download an artifact, or a file of one, to `to/name`; return that path once all is there and was checked.

        A download that was cut off goes on at the next call. to: the id of the job if omitted, in the present
        directory. overwrite: replace what is there. on_progress: called with the bytes that are there, and the
        bytes in all. patience: ten minutes with a service that is away if omitted. Raises DownloadError,
        ServiceAwayError, and OSError if the files cannot be written.
        """
        downloader = Downloader(self._transport, job_id, patience or Patience(), on_progress)
        return run(downloader.download(name, Path(to or job_id), overwrite=overwrite))
