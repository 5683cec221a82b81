"""Retention: rules by which the service removes ended jobs by itself."""
