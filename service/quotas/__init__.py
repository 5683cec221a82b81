"""Quotas: what the jobs of one owner may occupy together."""
