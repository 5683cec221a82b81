"""Scripts and styles of the pages, at addresses that change with their content, so that browsers keep them."""

import hashlib
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_DIRECTORY = Path(__file__).parent / "static"
_DIGITS = 12
_KEPT = "public, max-age=31536000, immutable"


def _hash_files(directory: Path) -> str:
    """Return a hash of all names and contents of a directory."""
    found = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(directory)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:_DIGITS]


_VERSION = _hash_files(_DIRECTORY)
STATIC_PATH = f"/static/{_VERSION}"
"""Path of the present files."""


class VersionedFiles(StaticFiles):
    """ASGI application below `/static/{version}`. Another version than the present one may be asked for by a page that
    another process of the service has sent; it gets the present files, and asks again each time."""

    def __init__(self) -> None:
        super().__init__(directory=_DIRECTORY)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if scope["path_params"]["version"] == _VERSION:
            response.headers["cache-control"] = _KEPT
        return response
