"""Experiment trackers: TensorBoard, MLflow and Weights & Biases get what a run reports. Imports no torch."""
