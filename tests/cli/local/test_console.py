from cli.local.console import escape_unprintable


def test_letters_that_a_terminal_would_obey_are_written_out() -> None:
    assert escape_unprintable("a\x1b[31mb\x9b\r\n\x00\u202e") == r"a\x1b[31mb\x9b\r\n\x00\u202e"
    assert escape_unprintable("Größe 漢字 \\ [bold]") == "Größe 漢字 \\ [bold]"


def test_letters_that_are_to_be_kept_are() -> None:
    assert escape_unprintable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
