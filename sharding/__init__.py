"""Processes and tables: process groups, plans, sharded lookup and exchange, dense sums.

Knows tables, rows and gradients, and nothing of the model that uses them.
"""
