"""Judgement of what a column is: the label, a weight, ids, a number, a time, or a leak."""
