"""Network addresses from which many wrong credentials came lately."""

import hashlib
from collections import OrderedDict

from starlette.datastructures import Headers

from service.http.token_buckets import MAX_NAMES, TokenBuckets


class Suspects:
    """Count of failed authentications by address.

    Credentials that were right before stay free of suspicion: whoever guesses must not lock out others at his address.
    """

    def __init__(self, failures_per_minute: float) -> None:
        """Begin to suspect an address after `failures_per_minute` failures; that many are forgotten in a minute."""
        self._failures = TokenBuckets(failures_per_minute / 60.0, failures_per_minute)
        self._right: OrderedDict[str, None] = OrderedDict()
        """Digests of credentials that were right, in the order of their last use."""

    def get_wait_seconds(self, address: str, credentials: str | None) -> float:
        """Return the seconds for which `address` is suspected; 0 where it or the credentials are not.

        credentials: what `digest_credentials` returned.
        """
        return 0.0 if credentials in self._right else self._failures.get_wait_seconds(address)

    def note_failure(self, address: str, credentials: str | None) -> None:
        """Count credentials that were wrong."""
        self._failures.take(address)
        if credentials is not None:
            self._right.pop(credentials, None)

    def note_success(self, credentials: str) -> None:
        """Remember credentials that were right."""
        self._right[credentials] = None
        self._right.move_to_end(credentials)
        if len(self._right) > MAX_NAMES:
            self._right.popitem(last=False)


def digest_credentials(headers: Headers) -> str | None:
    """Compute a digest of the credentials of a request; None if it has none."""
    credentials = headers.get("authorization", "") + "\n" + headers.get("cookie", "")
    return hashlib.sha256(credentials.encode()).hexdigest() if credentials != "\n" else None
