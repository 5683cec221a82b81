"""Checks the sentences of docstrings: `python .ci/docstrings.py [FILE OR DIRECTORY...]`, by default the whole product.

A function's docstring begins with a verb ("Return", "Write"), or with "Whether" where it returns a bool, so that it
can be read alone. That of a class, a module, a field or a constant begins with a noun phrase that has its head in it
("Learning rate of …"), never with a preposition or a pronoun that leans on the name ("Of …", "What …", "Where …").
No sentence has more than one relative clause; "if" stands for conditions and "where" for places; no "that of", "of
which" or "told" stands for a noun or a verb with a name of its own.
Exit code 1 if a docstring breaks a rule; each is a line with its place and what is wrong.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PACKAGES = ("cli", "service", "dlrm", "sharding", "hostinfo", "benchmarks")
LEANING = frozenset(
    """
    Of What Which Where When Whose Who That Those These This It They Its How Why By With Without From In Into On Over At
    For To As So Such Like If None Nothing Behind Before After Beside Between Beyond Or And But Same
    """.split()  # noqa: SIM905
)
"""Words that lean on what stands elsewhere."""
VERBS = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text().split())
"""Verbs that a function's docstring may begin with; a new one is added to the file."""

WORDING = {
    "say if for a condition": re.compile(
        r"\b[Ww]here (there (is|are|was|were)|none|nothing|neither|no|it (has|does|did|can|cannot)|that is|they"
        r" (have|do)|any|all)\b|\b(None|empty|none|null|0|only) where\b|\bRaises?\b[^.;]* where\b"
    ),
    "name the noun": re.compile(r"\b(that|those) of\b|\bof (which|whom)\b"),
    "say, report, send or know": re.compile(r"\b([Tt]ells?|told|telling)\b"),
}
"""Wordings that no docstring has, by what to do instead."""
CONJUNCTIONS = """
    so such than say says said is but now see know knows means if of in at to for from on by with and or
    """.split()  # noqa: SIM905
"""Words behind which "that" is a conjunction or a pronoun."""
RELATIVE = re.compile(
    r"\b(?:which|whose|who|whom)\b|" + "".join(rf"(?<!\b{word})" for word in CONJUNCTIONS) + r" that\b(?! of\b)"
)
"""Words that begin a relative clause."""


def findings_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of every docstring of `source` that breaks a rule, and its beginning or the wrong sentence."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from ((node.lineno, fault) for fault in _faults_of_wording(node.value.value))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not _begins_as_function(text, node):
                yield node.body[0].lineno, _beginning(text)
        if isinstance(node, ast.Module | ast.ClassDef):
            text = ast.get_docstring(node)
            if text and _first_word(text) in LEANING:
                yield node.body[0].lineno, _beginning(text)
            yield from _findings_in_fields(node)


def _findings_in_fields(node: ast.Module | ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Yield findings of strings behind assignments, also of those in the body of `__init__`."""
    bodies = [node.body]
    bodies += [part.body for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    for body in bodies:
        for before, part in pairwise(body):
            if not isinstance(before, ast.Assign | ast.AnnAssign):
                continue
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                text = part.value.value.strip()
                if _first_word(text) in LEANING:
                    yield part.lineno, _beginning(text)


def _faults_of_wording(text: str) -> Iterator[str]:
    for sentence in re.split(r"(?<=[.;:?])\s+|\n\n", text):
        words = " ".join(sentence.split())
        for advice, pattern in WORDING.items():
            if pattern.search(words):
                yield f"{advice}: {words}"
        if len(RELATIVE.findall(words)) > 1:
            yield f"one relative clause a sentence: {words}"


def _begins_as_function(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = _first_word(text)
    if first == "Whether":
        return node.returns is not None and "bool" in ast.unparse(node.returns)
    is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
    is_fixture = any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    # A property is read like a field.
    return first in VERBS or ((is_property or is_fixture) and first not in LEANING)


def _first_word(text: str) -> str:
    """Return the first word; shapes such as [c, F, D] and a placeholder in capitals in front of it do not count."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        stripped = stripped.partition("]")[2].lstrip(" ,:;0123456789")
    return stripped.split(maxsplit=1)[0].strip(".,:;`\"'") if stripped else ""


def _beginning(text: str) -> str:
    return text.splitlines()[0][:80]


def main() -> int:
    """Print the findings of the files that are named on the command line."""
    places = [Path(name) for name in sys.argv[1:] or PACKAGES]
    num_findings = 0
    for place in places:
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for line, beginning in findings_in(path.read_text()):
                print(f"{path}:{line}: {beginning}")  # noqa: T201
                num_findings += 1
    return 1 if num_findings else 0


if __name__ == "__main__":
    sys.exit(main())
