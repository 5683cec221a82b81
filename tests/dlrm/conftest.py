"""Both ways of the dense part's operators."""

import pytest

from dlrm.native import has_own_operators


@pytest.fixture(params=["own", "plain"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the own operators, or in plain torch."""
    if request.param == "own" and not has_own_operators():
        pytest.skip("the operators are not built here")
    if request.param == "plain":
        for module in ("dlrm.native", "dlrm.gradient_stats.exact"):
            monkeypatch.setattr(f"{module}.has_own_operators", lambda: False)
    return request.param
