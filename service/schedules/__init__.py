"""Schedules: recurring jobs, such as the daily retraining of a model with new rows."""
