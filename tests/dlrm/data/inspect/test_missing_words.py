"""Words that stand for missing values in text files."""

import polars as pl

from dlrm.data.inspect.sample.text_columns import find_missing_words


def test_words_among_numbers_are_missing_values_as_they_stand() -> None:
    rows = pl.DataFrame(
        {"age": ["1", " ?", "2.5", None], "city": ["a", "b", "c", "d"], "size": ["-3", "1e5", "NA", "NA"]}
    )
    assert find_missing_words(rows) == [" ?", "NA"]


def test_words_among_words_or_unknown_ones_among_numbers_are_values() -> None:
    rows = pl.DataFrame({"country": ["NA", "CH", "DE"], "grade": ["1", "2", "none given"], "all": ["NA", "NA", "?"]})
    assert find_missing_words(rows) == []


def test_numbers_alone_have_no_missing_words() -> None:
    assert (
        find_missing_words(
            pl.DataFrame({"a": ["1", "2", "3"], "b": [None, None, None]}, schema_overrides={"b": pl.String})
        )
        == []
    )


def test_a_word_that_may_be_a_label_stays_a_value() -> None:
    rows = pl.DataFrame({"x": ["1", "2", "-"], "y": ["1", "NA", "3"], "label": ["+", "-", "+"]})
    assert find_missing_words(rows) == ["NA"]
