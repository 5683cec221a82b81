"""A real S3 server on loopback, behind a proxy that fails, cuts or falls silent as a network does."""

import contextlib
import logging
import os
import random
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Literal

import httpx
from moto.server import ThreadedMotoServer
from pyarrow import fs

State = Literal["well", "cut", "silent"]
KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
STORE_VARIABLES = ("AWS_", "GOOGLE_", "CLOUDSDK_", "DLRM_RUN_STORE")
BAD_ANSWER = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
WRITES = (b"PUT ", b"POST ", b"DELETE ")
"""Beginnings of requests that write."""
BUCKET = "bucket"


class Proxy:
    """A proxy before a server, one thread a connection."""

    def __init__(self, server: tuple[str, int], seed: int = 1) -> None:
        self._server = server
        self._chance = random.Random(seed)
        self.failing_fraction = 0.0
        """Share of the requests that fail: half are answered by 503, half by the end of the connection."""
        self.forbidden: tuple[bytes, ...] = ()
        """Beginnings of requests that are answered by 403."""
        self.state: State = "well"
        self.num_requests = self.num_failed = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.state = "cut"
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while self.state == "silent":
                # What is sent is taken, and never answered.
                if select.select([client], [], [], 0.1)[0] and not client.recv(2**16):
                    return
            if self.state == "cut":
                return
            with socket.create_connection(self._server) as server:
                self._pump(client, server)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        is_at_request = True
        while True:
            ready = select.select([client, server], [], [], 0.1)[0]
            if self.state == "cut":
                return
            if self.state == "silent":
                continue
            if server in ready:
                if not (data := server.recv(2**16)):
                    return
                client.sendall(data)
                is_at_request = True
            if client in ready:
                if not (data := client.recv(2**16)):
                    return
                if is_at_request and not self._admit(client, data):
                    return
                is_at_request = False
                server.sendall(data)

    def _admit(self, client: socket.socket, data: bytes) -> bool:
        """Whether a request is passed on; otherwise it has been answered, or its connection is to end."""
        self.num_requests += 1
        if data.startswith(self.forbidden):
            client.sendall(FORBIDDEN)
            return False
        if self._chance.random() >= self.failing_fraction:
            return True
        self.num_failed += 1
        if self._chance.random() < 0.5:
            client.sendall(BAD_ANSWER)
        return False


@dataclass(frozen=True)
class Bucket:
    """An empty bucket, and the ways to it."""

    address: str
    """Address of the server itself."""
    proxy: Proxy

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that reaches the bucket through the proxy."""
        return {**KEYS, "AWS_ENDPOINT_URL": f"http://{self.proxy.address}"}

    @property
    def files(self) -> fs.S3FileSystem:
        """Undisturbed access of the test itself."""
        return fs.S3FileSystem(
            access_key="me",
            secret_key="secret",
            region="us-east-1",
            scheme="http",
            endpoint_override=self.address,
            allow_bucket_creation=True,
        )

    def list_names(self, below: str = "") -> list[str]:
        """List the names of the objects below a prefix, relative to the bucket."""
        selector = fs.FileSelector(f"{BUCKET}/{below}".rstrip("/"), recursive=True, allow_not_found=True)
        infos = self.files.get_file_info(selector)
        return sorted(info.path.removeprefix(f"{BUCKET}/") for info in infos if info.type == fs.FileType.File)

    def read(self, name: str) -> bytes:
        with self.files.open_input_stream(f"{BUCKET}/{name}") as stream:
            return stream.read()

    def write(self, name: str, content: bytes) -> None:
        with self.files.open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(content)


@cache
def start_server() -> tuple[str, int]:
    """Start the S3 server of this process, unless it runs, and return its address. It ends with the process."""
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    return server.get_host_and_port()


@contextmanager
def serve_bucket() -> Iterator[Bucket]:
    """Serve an empty bucket for the block, one at a time."""
    host, port = start_server()
    proxy = Proxy((host, port))
    bucket = Bucket(f"{host}:{port}", proxy)
    try:
        httpx.post(f"http://{bucket.address}/moto-api/reset").raise_for_status()
        bucket.files.create_dir(BUCKET)
        yield bucket
    finally:
        proxy.close()


def make_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without its own stores, with `more`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(STORE_VARIABLES)}
    return {**own, **more}
