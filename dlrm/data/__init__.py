"""Rows, from raw files to batches, in numpy, polars and Arrow; torch is not imported.

raw       reads files of any format: cuts them into blocks, parses and checks the rows
encode    turns raw values into dense features and table rows
prepare   turns raw files into packed files, once
packed    reads the packed format through memory maps
synthetic generates a synthetic click log
inspect   reports what the data contains
The modules of this package itself split, order and batch rows for training.
"""
