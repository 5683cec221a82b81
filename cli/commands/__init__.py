"""Commands of `dlrm`, one module each."""
