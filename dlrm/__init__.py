"""The training program: configuration, data, model, optimizers, step, loop and checkpoints.

Importing this package does not import torch; `dlrm.config` and `dlrm.record` never do.
"""
