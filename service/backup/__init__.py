"""Backup of the database of a service, while it runs, and its restoration."""
