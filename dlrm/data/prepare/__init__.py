"""Raw files into packed ones."""
