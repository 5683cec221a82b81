"""What is in the data: shares, counts, and columns that give the label away."""
