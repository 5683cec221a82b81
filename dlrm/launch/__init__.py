"""The launch process of one attempt, `python -m dlrm.launch`: starts the ranks of one node and says how they ended.

Nothing is imported here: the signals are taken first, in `__main__`.
"""
