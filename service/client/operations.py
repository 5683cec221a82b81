"""All operations of a service, written once for both clients."""

from service.client.administration import AdministrationOperations
from service.client.following import FollowingOperations
from service.client.results import ResultOperations


class Operations(FollowingOperations, ResultOperations, AdministrationOperations):
    """Operations of one service, as coroutines that wait as their transport does. Lists are asynchronous iterators."""
