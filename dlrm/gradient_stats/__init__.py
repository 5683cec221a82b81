"""Statistics of the dense gradient: moments, noise scale, and variance reduction, which uses the moments.

Import from the modules: `noise` and `batch_advice` need no torch.
"""
