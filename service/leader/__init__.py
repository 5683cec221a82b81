"""The leader: the one process of a service that starts, watches and ends attempts."""
