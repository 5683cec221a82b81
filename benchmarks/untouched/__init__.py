"""AUC of untouched jobs, written by `dlrm prepare --infer`, beside references with an expert's columns."""
