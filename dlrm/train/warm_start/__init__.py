"""Going on from a trained model: a run that begins with its weights, and whose ids mean what they meant to it."""
