"""The synthetic click log and the teacher that draws its labels."""
