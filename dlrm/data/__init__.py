"""Rows, from raw files to batches. numpy, polars and arrow throughout, no torch.

raw       files of any format, cut into blocks, parsed and checked
encode    how raw values become numbers and table rows
prepare   raw files into packed ones, once
packed    the packed format, mapped into memory
synthetic the synthetic log
inspect   what is in the data
The modules beside them split, order and batch rows for training.
"""
