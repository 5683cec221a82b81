import pytest

from cli.local.console import console_on, escape_unprintable
from cli.render.tables import make_facts_table


def test_letters_that_a_terminal_would_obey_are_written_out() -> None:
    assert escape_unprintable("a\x1b[31mb\x9b\r\n\x00\u202e") == r"a\x1b[31mb\x9b\r\n\x00\u202e"
    assert escape_unprintable("Größe 漢字 \\ [bold]") == "Größe 漢字 \\ [bold]"


def test_letters_that_are_to_be_kept_are() -> None:
    assert escape_unprintable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


def test_lines_of_a_piped_table_end_with_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    console_on().print(make_facts_table([("end", "of a run that failed"), ("AUC", "0.7")]))
    assert capsys.readouterr().out == "end  of a run that failed\nAUC  0.7\n"
