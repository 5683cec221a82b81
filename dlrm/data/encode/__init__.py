"""Encoders that turn raw values into the inputs of a model."""
