"""Going on from a trained model: a run that begins with its weights and keeps the meaning of its ids."""
