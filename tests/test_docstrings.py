"""The check of the sentences of docstrings."""

import importlib.util
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / ".ci" / "docstrings.py"


def findings_in(source: str) -> list[str]:
    spec = importlib.util.spec_from_file_location("docstrings", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [beginning for _, beginning in module.findings_in(source)]


@pytest.mark.parametrize(
    "source",
    [
        'def f() -> int:\n    """Return the number of rows."""',
        'def f() -> int:\n    """[b] Return the labels."""',
        'async def f() -> None:\n    """Write, then read."""',
        'def is_f() -> bool:\n    """Whether there are rows."""',
        'class A:\n    """Rows of a log."""\n    @property\n    def f(self) -> int:\n        """Number of rows."""',
        'class A:\n    """Rows."""\n    rows: int\n    """Number of rows."""',
        'ROWS = 3\n"""Rows that are read at a time."""',
        "def f() -> int:\n    return 1",
        'x = 3\n"What stands somewhere else is no docstring." + str(x)',
    ],
)
def test_a_docstring_that_can_be_read_alone_passes(source: str) -> None:
    assert findings_in(source) == []


@pytest.mark.parametrize(
    ("source", "beginning"),
    [
        ('def f() -> int:\n    """Of the rows, how many."""', "Of the rows, how many."),
        ('def f() -> int:\n    """What is there."""', "What is there."),
        ('def f() -> int:\n    """The number of rows."""', "The number of rows."),
        ('def f() -> int:\n    """Returns the number of rows."""', "Returns the number of rows."),
        ('def f() -> int:\n    """Whether there are rows."""', "Whether there are rows."),
        ('class A:\n    """Of one run."""', "Of one run."),
        ('class A:\n    """Rows."""\n    rows: int\n    """Of all ranks."""', "Of all ranks."),
        (
            'class A:\n    """Rows."""\n    def __init__(self):\n        self.a = 1\n        """By rank, so many."""',
            "By rank, so many.",
        ),
        (
            'class A:\n    """Rows."""\n    @property\n    def f(self) -> int:\n        """That are left."""',
            "That are left.",
        ),
        ('ROWS = 3\n"""At a time."""', "At a time."),
        ('"""What a module is for."""', "What a module is for."),
    ],
)
def test_a_docstring_that_leans_on_its_name_or_begins_without_a_verb_is_found(source: str, beginning: str) -> None:
    assert findings_in(source) == [beginning]


@pytest.mark.parametrize(
    ("sentence", "advice"),
    [
        ("Number of rows; None where there is none.", "say if for a condition"),
        ("Where there are no rows, it is 0.", "say if for a condition"),
        ("Length of the run, that of its epochs.", "name the noun"),
        ("Files of which one is missing.", "name the noun"),
        ("Steps so far; None until node 0 has told it.", "say, report, send or know"),
        ("Table which has rows that are frequent.", "one relative clause a sentence"),
    ],
)
def test_a_wording_that_readers_stumble_over_is_found(sentence: str, advice: str) -> None:
    [finding] = findings_in(f'ROWS = 3\n"""Rows. {sentence}"""')
    assert finding.startswith(f"{advice}: ")


@pytest.mark.parametrize(
    "sentence",
    ["Directory where the rows lie; None if absent.", "Rows, so that a file which is short says that it is."],
)
def test_places_and_single_clauses_pass(sentence: str) -> None:
    assert findings_in(f'ROWS = 3\n"""{sentence}"""') == []
