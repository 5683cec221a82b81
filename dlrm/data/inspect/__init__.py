"""Inspection of data: shares, counts, and columns that leak the label."""
