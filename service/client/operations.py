"""All operations of a service, written once for both clients."""

from service.client.administration import AdministrationOperations
from service.client.jobs import JobOperations
from service.client.results import ResultOperations


class Operations(JobOperations, ResultOperations, AdministrationOperations):
    """Operations of one service, as coroutines that wait as their transport does. Lists are asynchronous iterators."""
