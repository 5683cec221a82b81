"""What the machine has, and what of it is free."""
