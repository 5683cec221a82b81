"""The packed format."""
