"""Access: the sender of a request, its role, and the jobs that it may know of."""
