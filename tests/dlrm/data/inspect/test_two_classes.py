import pytest

from dlrm.data.inspect.judge.label_words import choose_positive


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        *((1.0, 0.0), (1, -1), (3, 0), ("1.0", "0.0"), ("+1", "-1"), (" 1", "0"), ("class_1", "class_0")),
        # Databases that store true as -1.
        (-1, 0),
        *(("yes", "no"), ("Y", "N"), ("T", "F"), ("positive", "negative"), ("+", "-"), ("да", "нет")),
        *(("clicked", "not clicked"), ("Clicked", "DidntClick"), ("clicked", "didn't click"), ("click", "unclick")),
        *(("conv", "noconv"), ("purchased", "not_purchased"), ("conversion", "no conversion"), ("active", "inactive")),
        *(("buy", "pv"), ("click", "impression"), ("like", "dislike"), ("6 - Closed/Won", "6 - Closed/Lost")),
        # Adult, census income, Bank churners, LendingClub, airline passengers, WDBC, chronic kidney disease.
        *((">50K.", "<=50K."), ("50000+.", "- 50000."), ("Attrited Customer", "Existing Customer")),
        *(("Charged Off", "Fully Paid"), ("satisfied", "neutral or dissatisfied"), ("M", "B"), ("ckd", "notckd")),
        # Diabetes of Weka, breast cancer recurrence, hotel bookings, appointments, heart disease.
        *(("tested_positive", "tested_negative"), ("recurrence-events", "no-recurrence-events")),
        *(("Canceled", "Check-Out"), ("No-show", "Show"), ("Presence", "Absence"), ("success", "failure")),
        *(("unhealthy", "healthy"), ("Abnormal", "Normal"), ("active", "inactive"), ("satisfied", "dissatisfied")),
    ],
)
@pytest.mark.parametrize("num_rows", [(90, 10), (10, 90)])
def test_values_that_say_which_is_1_are_read_however_many_rows_have_them(
    positive: object, negative: object, num_rows: tuple[int, int]
) -> None:
    for values in ((positive, negative), (negative, positive)):
        found = choose_positive(values, num_rows)
        assert (found.positive, found.negative, found.is_certain) == (positive, negative, True)


@pytest.mark.parametrize("values", [("good", "bad"), ("f", "m"), ("e", "p"), ("alpha", "beta"), ("left", "right")])
def test_values_that_do_not_say_it_are_taken_by_their_rarity_and_told_as_uncertain(values: tuple[str, str]) -> None:
    for num_rows, rarer in (((90, 10), 1), ((10, 90), 0)):
        found = choose_positive(values, num_rows)
        assert (found.positive, found.is_certain) == (values[rarer], False)


def test_of_codes_the_larger_is_taken_and_told_as_uncertain() -> None:
    found = choose_positive((1, 2), (10, 90))
    assert (found.positive, found.why, found.is_certain) == (2, "the larger number", False)
