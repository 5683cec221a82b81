"""Secrets: 256 random bits each, so that a plain hash of one gives nothing away."""

import hashlib
import secrets


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
