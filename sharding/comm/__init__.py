"""Communication of the processes of one run: process groups, votes, all-reduces, shared memory."""
