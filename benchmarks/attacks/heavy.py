"""Attacks that want the memory or the time of the service: all that are made on a service just started."""

from benchmarks.attacks.bodies import BODIES
from benchmarks.attacks.connections import CONNECTIONS
from benchmarks.attacks.floods import FLOODS

HEAVY = [*CONNECTIONS, *BODIES, *FLOODS]
