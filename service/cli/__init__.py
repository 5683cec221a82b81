"""The `dlrm` command: one file a command."""
