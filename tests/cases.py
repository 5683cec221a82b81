"""Cases of tests whose parameters are a product of options."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest


def list_cases(telling: Collection[tuple[Any, ...]], *options: Iterable[Any]) -> list[Any]:
    """List the product of the options as parameters of a test; all cases but the telling ones are slow."""
    return [pytest.param(*case, marks=() if case in telling else pytest.mark.slow) for case in product(*options)]
