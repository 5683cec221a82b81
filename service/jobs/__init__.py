"""Jobs: what was asked for, in which state it is, and all that happened to it."""
