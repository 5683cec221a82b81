"""Statistics of the dense gradient: its moments, its noise scale, and variance reduction, which goes by them.

Import from the modules: `noise` and `batch_advice` need no torch.
"""
