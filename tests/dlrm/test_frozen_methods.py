"""Methods, most of them kept but no longer developed: few modules know them by name, so that they cost little
elsewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KNOWN_BY = {
    "soap": ["dlrm/config/optimizers.py", "dlrm/optimizers/dense.py", "dlrm/optimizers/soap.py"],
    "schedule_?free": [
        "dlrm/config/optimizers.py",
        "dlrm/optimizers/dense.py",
        "dlrm/optimizers/schedule_free.py",
    ],
    "kfac": ["dlrm/config/preconditioner.py", "dlrm/preconditioners/__init__.py", "dlrm/preconditioners/kfac.py"],
    "adafactor": ["dlrm/config/optimizers.py", "dlrm/optimizers/adafactor.py", "dlrm/optimizers/dense.py"],
    "adascale": [
        "dlrm/config/cooldown.py",
        "dlrm/config/curves.py",
        "dlrm/config/dense_averaging.py",
        "dlrm/config/job.py",
        "dlrm/config/optimizers.py",
        "dlrm/config/schedule.py",
        "dlrm/optimizers/gain.py",
    ],
    "cowclip": ["dlrm/config/optimizers.py", "sharding/embedding/count_rule.py"],
    "count_exponent": ["dlrm/config/optimizers.py", "sharding/embedding/count_rule.py"],
    "reset_tables|table_?reset|tables_drawn_at": [
        "dlrm/checkpoint/progress.py",
        "dlrm/config/continuation.py",
        "dlrm/config/job.py",
        "dlrm/config/run.py",
        "dlrm/train/setup.py",
        "dlrm/train/table_reset.py",
    ],
    r"run\.blend\b|exported_model\.blend\b|train\.blend\b": [
        "dlrm/config/decide.py",
        "dlrm/config/resident_memory.py",
        "dlrm/config/tasks.py",
        "dlrm/exported_model/blend.py",
        "dlrm/exported_model/refine.py",
        "dlrm/exported_model/run_checkpoint.py",
        "dlrm/record/quality_warnings.py",
        "dlrm/train/blend.py",
        "dlrm/train/finishing.py",
        "dlrm/train/run.py",
        "dlrm/train/warm_start/start.py",
    ],
}
"""Modules that may name a method, by a pattern of its names: the settings, the registry and the implementation, and
where a method is a part of the run, the parts that it hooks into."""


@pytest.mark.parametrize("names", KNOWN_BY)
def test_only_these_modules_name_a_method(names: str):
    pattern = re.compile(names, re.IGNORECASE)
    modules = (path for package in ("dlrm", "sharding") for path in (ROOT / package).rglob("*.py"))
    found = [str(path.relative_to(ROOT)) for path in modules if pattern.search(path.read_text())]
    assert sorted(found) == KNOWN_BY[names]
