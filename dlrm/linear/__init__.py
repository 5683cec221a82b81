"""Linear models: their inputs, and the fit of a logistic regression."""
