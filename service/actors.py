"""Names of the parts of the service that act on jobs by themselves, beside the owners of keys."""

SCHEDULER, RECONCILER, TRAINER = "scheduler", "reconciler", "trainer"
PARTS = frozenset({SCHEDULER, RECONCILER, TRAINER})
"""Names that no owner of keys may have: what he does would look as if the service had done it."""
