"""AUC of untouched jobs, which `dlrm prepare --infer` writes, beside that of references with an expert's columns."""
