"""An AUC with its standard error: as text, and whether it is no better than a guess."""

GUESSED_AUC = 0.5
"""AUC of scores that do not depend on the row."""
MAX_STANDARD_ERRORS = 3.0
"""Standard errors by which the AUC of a guess may differ from GUESSED_AUC."""
MAX_STANDARD_ERROR = 0.01
"""Standard error of the AUC above which models can hardly be told apart."""


def is_guess(auc: float | None, standard_error: float | None) -> bool:
    """Whether an AUC is no better than a guess, 0.5, as far as enough rows can show."""
    if auc is None or standard_error is None or standard_error > MAX_STANDARD_ERROR:
        return False
    return abs(auc - GUESSED_AUC) <= MAX_STANDARD_ERRORS * standard_error


def format_auc(auc: float, standard_error: float | None) -> str:
    """Format an AUC with its standard error, where that is known: "0.7812 ± 0.0021"."""
    return f"{auc:.4f}" if standard_error is None else f"{auc:.4f} \N{PLUS-MINUS SIGN} {standard_error:.4f}"
