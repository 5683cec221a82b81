"""What running jobs say: their reports, taken in once each, and their logs."""
