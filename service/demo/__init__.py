"""`make demo`: from nothing to a trained model through a service of its own, with figures at the end."""
