"""How raw values become what a model takes."""
