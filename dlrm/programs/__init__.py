"""Programs of the trainer, each a process of its own: `python -m dlrm.programs.NAME`."""
