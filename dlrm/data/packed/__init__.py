"""The packed format: its layout, and the rows read from it through memory maps."""
