"""The `dlrm` command line, with one module per command."""
