"""Whole content of a report."""

from cli.experiments.report.content import Page
from cli.experiments.report.course_section import make_course_section
from cli.experiments.report.detail_sections import make_detail_sections
from cli.experiments.report.numbers import SweepReport
from cli.experiments.report.result_sections import make_result_sections
from cli.experiments.report.scaling_sections import make_scaling_sections
from cli.experiments.sweep.asked import ASKED_FILE_NAME


def make_page(report: SweepReport, title: str) -> Page:
    """Make the content of a report."""
    num_trials, num_files = len(report.loaded.trials), len(report.loaded.files)
    results = "one file of results" if num_files == 1 else f"{num_files} files of results"
    compared = ", ".join(report.loaded.compare)
    across = f", at each value of {compared}" if compared else ""
    trials = "1 trial" if num_trials == 1 else f"{num_trials:,} trials"
    lead = f"{trials} of a sweep, from {results}. {_describe_choice(report, across)}"
    sections = [
        *make_result_sections(report),
        make_course_section(report.courses),
        *make_scaling_sections(report),
        *make_detail_sections(report),
    ]
    return Page(title, lead, sections)


def _describe_choice(report: SweepReport, across: str) -> str:
    cells = report.cells
    if report.loaded.unlisted:
        kind = "Best setting" if any(cell.is_chosen for cell in cells) else "The only setting"
        return (
            f"{kind} of each method{across} among these results: {ASKED_FILE_NAME}, which says what the sweep asks "
            "for, is not beside them, so that it is not known whether trials are left."
        )
    if any(cell.is_open for cell in cells):
        return f"Best setting so far of each method{across}, as the validation rows choose it: not all trials have run."
    if any(cell.is_chosen for cell in cells):
        return f"Best setting of each method{across}, as the validation rows choose it."
    return f"Each method has one setting{across}, so that nothing is chosen by these results."
