"""Programs of the trainer, each a separate process: `python -m dlrm.programs.NAME`."""
