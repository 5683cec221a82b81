"""Webhooks: signed requests to addresses of users, when a job changes its state."""
