"""Checks of a key that somebody presents, with the sentence for one that is refused."""

import re
from datetime import datetime

from service.keys.models import ApiKey

KEY_PREFIX = "dlrm_"
_FORM = re.compile(rf"{KEY_PREFIX}[A-Za-z0-9_-]{{43}}")


class RefusedError(Exception):
    """Refusal of a key, a sign-in link or a session; the text is for its holder."""

    def __init__(self, message: str, why: str, key: ApiKey | None = None) -> None:
        """Keep the reason in one word, `why`, and id and owner of the key, empty if none is known."""
        super().__init__(message)
        self.why = why
        self.key_id = key.id if key else ""
        self.owner = key.owner if key else ""


def has_form_of_key(secret: str) -> bool:
    """Whether `secret` may be a key; if it cannot, it is not looked up."""
    return _FORM.fullmatch(secret) is not None


def check_key(key: ApiKey | None, at: datetime) -> ApiKey:
    """Return a key that may be used at this time. Raises RefusedError if it may not."""
    fix = "ask an administrator for another one (`dlrm keys create`)"
    if key is None:
        raise RefusedError(f"unknown API key; {fix}", "unknown")
    if key.revoked_at is not None:
        raise RefusedError(f"this API key was revoked at {key.revoked_at:%Y-%m-%d %H:%M} UTC; {fix}", "revoked", key)
    if key.expires_at is not None and key.expires_at <= at:
        raise RefusedError(f"this API key expired at {key.expires_at:%Y-%m-%d %H:%M} UTC; {fix}", "expired", key)
    return key
