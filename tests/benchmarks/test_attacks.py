"""Rows of the table of attacks."""

from dataclasses import replace

from benchmarks.attacks.rows import Row, format_table, list_faults, make_row
from benchmarks.attacks.sending import describe
from benchmarks.attacks.watch import LOST, Probe

ROW = Row("an attack", "401", grown_bytes=10**6, children_bytes=0, longest_seconds=0.02, num_requests=9, refused={})


def test_requests_count_that_were_in_progress_during_the_attack():
    probes = [
        Probe(0.0, 9.9, 200),
        Probe(9.0, 10.5, 200),
        Probe(11.0, 11.1, LOST),
        Probe(11.5, 13.5, 503),
        Probe(11.9, 20.0, LOST),
        Probe(12.1, 20.0, 200),
    ]
    row = make_row("an attack", "401", (1, 2), (10.0, 12.0), probes)
    assert row == Row("an attack", "401", 1, 2, longest_seconds=2.0, num_requests=3, refused={"0": 1, "503": 1})


def test_an_attack_during_which_no_request_was_made_has_held_all_of_them():
    assert list_faults([make_row("an attack", "401", (1, 2), (10.0, 12.0), [])]) != []


def test_whatever_exceeds_a_limit_is_named():
    assert list_faults([ROW]) == []
    large, long = replace(ROW, grown_bytes=60 * 10**6), replace(ROW, longest_seconds=1.25)
    assert list_faults([large, long, replace(ROW, refused={"503": 2})]) == [
        "an attack: takes 60 MB",
        "an attack: holds another request for 1.2 s",
        "an attack: others are refused (2 x 503)",
    ]


def test_a_row_has_all_figures():
    row = replace(ROW, children_bytes=2 * 10**6, refused={"503": 2})
    assert format_table([row]).splitlines()[2:] == ["| an attack | 401 | 1, and 2 in child processes | 20 (2 x 503) |"]


def test_equal_answers_are_told_once():
    assert describe([401, 401]) == "401"
    assert describe([429, 401, 401, 0]) == "1 x no answer, 2 x 401, 1 x 429"
