"""The launch process of one attempt, `python -m dlrm.launch`: starts the ranks of one node and reports how they ended.

Nothing is imported here, since `__main__` must first block the stop signals.
"""
