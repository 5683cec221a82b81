"""HTTP: problem documents, request bodies, pages of lists, timing, health."""
