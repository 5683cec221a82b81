"""Secrets of 256 random bits each, so that a plain hash reveals nothing about them."""

import hashlib
import secrets


def new_secret(prefix: str = "") -> str:
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Compute the SHA-256 hex digest that is stored in place of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()
