"""Resources of the machine: in total, and free."""
