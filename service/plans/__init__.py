"""Plans of jobs that are not submitted."""
