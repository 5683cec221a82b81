"""The two kinds of kernels of the dense part: native operators and plain torch."""

import pytest

from dlrm.native import has_native_operators


@pytest.fixture(params=["native", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with the native operators, and in plain torch."""
    if request.param == "native" and not has_native_operators():
        pytest.skip("the operators are not built here")
    if request.param == "plain":
        for module in ("dlrm.native", "dlrm.model.squares"):
            monkeypatch.setattr(f"{module}.has_native_operators", lambda: False)
    return request.param
