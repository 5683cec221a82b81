"""Which fields an optimizer has, its defaults, and what a warm-up longer than the run says."""

from typing import Any

import pytest

from dlrm.config import (
    ConfigError,
    DenseOptimizerConfig,
    JobConfig,
    JobSpec,
    list_differences,
    make_identity,
    parse_job,
    resolve,
)
from dlrm.config.optimizers import SETTINGS

DATA: dict[str, Any] = {"data": {"format": "synthetic"}}
NAMES = sorted(SETTINGS)


def errors_of(section: str, document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_job({**DATA, section: document})
    return {error.field.removeprefix(f"{section}."): str(error) for error in caught.value.errors}


@pytest.mark.parametrize("name", NAMES)
def test_a_resolved_document_has_what_its_optimizer_has_and_reads_back_as_it_is(name: str):
    job = parse_job({**DATA, "dense_optimizer": {"name": name}})
    dumped = job.model_dump(mode="json")
    given = {field for field, value in dumped["dense_optimizer"].items() if value is not None}
    assert given == {"name", "groups", "schedule", "memory", "nesterov", *SETTINGS[name]}
    assert parse_job(dumped) == job
    assert JobSpec.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize("name", NAMES)
def test_a_given_field_is_kept_and_null_takes_the_default(name: str):
    optimizer = DenseOptimizerConfig.model_validate({"name": name, "learning_rate": None, "weight_decay": 0.25})
    assert (optimizer.learning_rate, optimizer.weight_decay) == (SETTINGS[name]["learning_rate"], 0.25)


@pytest.mark.parametrize(
    ("document", "field", "hint"),
    [
        ({"name": "sgd", "momentum": 0.9}, "momentum", "sgd has no momentum (valid: leave it out, or use momentum or"),
        ({"name": "adam", "momentum": 0.9}, "momentum", "adam has no momentum"),
        ({"beta1": 1.0}, "beta1", "less than 1"),
        ({"name": "lars", "beta1": 0.9}, "beta1", "lars has no beta1 (valid: leave it out, or use adam or adamw or"),
        ({"name": "lamb", "trust_coefficient": 0.1}, "trust_coefficient", "or use lars"),
        (
            {"name": "momentum", "memory": "samples"},
            "memory",
            'momentum has no mean that forgets by beta2 (valid: "steps", or use adam',
        ),
        ({"name": "adagrad", "momentum_dtype": "bf16"}, "momentum_dtype", "adagrad has no momentum_dtype"),
        (
            {"name": "adam", "shampoo_beta": 0.9},
            "shampoo_beta",
            "adam has no shampoo_beta (valid: leave it out, or use soap",
        ),
        ({"name": "soap", "precondition_every": 0}, "precondition_every", "greater than or equal to 1"),
        (
            {"name": "schedule_free", "schedule": {"decay": "cosine"}},
            "schedule.decay",
            '(valid: "constant", or another',
        ),
        ({"momentum_dtype": "fp16"}, "momentum_dtype", "'fp32' or 'bf16'"),
        ({"name": "lion"}, "name", "'adafactor' or 'schedule_free'"),
        ({"name": "adafactor", "beta2": 0.9}, "beta2", "adafactor has no beta2"),
        ({"name": "adafactor", "memory": "samples"}, "memory", "adafactor has no mean that forgets by beta2"),
        (
            {"name": "sgd", "nesterov": True},
            "nesterov",
            "sgd has no nesterov (valid: false, or the optimizer momentum)",
        ),
        (
            {"name": "momentum", "momentum": 0.0, "nesterov": True},
            "nesterov",
            "(valid: false, or the optimizer momentum)",
        ),
        ({"max_gradient_norm": 0.0}, "max_gradient_norm", "greater than or equal to 1e-30"),
        (
            {"name": "adam", "groups": [{"parameters": "*", "trust_ratio": True}]},
            "groups.0.trust_ratio",
            "lars or lamb",
        ),
        ({"groups": [{"parameters": ""}]}, "groups.0.parameters", "at least 1 character"),
        ({"groups": [{"parameters": "*", "learning_rate_factor": -1.0}]}, "groups.0.learning_rate_factor", "or equal"),
        ({"groups": [{"parameter": "*"}]}, "groups.0.parameter", "did you mean 'parameters'?"),
        ({"schedule": {"decay": "cosine", "power": 1.0}}, "schedule.power", 'decay "cosine" has no power'),
        ({"schedule": {"cooldown_fraction": 0.1}}, "schedule.cooldown_fraction", 'or decay "wsd"'),
        ({"schedule": {"decay": "wsd", "cooldown_fraction": 0.6}}, "schedule.cooldown_fraction", "equal to 0.5"),
        ({"schedule": {"warmup_fraction": 0.6}}, "schedule.warmup_fraction", "equal to 0.5"),
    ],
)
def test_a_bad_optimizer_names_the_field_and_what_would_be_valid(document: dict[str, Any], field: str, hint: str):
    errors = errors_of("dense_optimizer", document)
    assert field in errors
    assert hint in errors[field]


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_an_earlier_version_did_not_have_were_the_defaults_of_its_optimizer(name: str):
    now = make_identity(JobConfig.model_validate({**DATA, "dense_optimizer": {"name": name}}))
    known = ("dense_optimizer.name", "dense_optimizer.learning_rate")
    before = {field: value for field, value in now.items() if field in known or "_optimizer" not in field}
    assert list_differences(now, before) == []
    decayed = make_identity(JobConfig.model_validate({**DATA, "dense_optimizer": {"name": name, "weight_decay": 0.5}}))
    (difference,) = list_differences(decayed, before)
    assert difference == f"dense_optimizer.weight_decay is 0.5, but was {SETTINGS[name]['weight_decay']}"


@pytest.mark.parametrize("section", ["dense", "table"])
def test_a_warm_up_that_legw_makes_too_long_is_capped_and_said_so(section: str):
    document = {"schedule": {"scaling": "legw", "warmup_fraction": 0.01, "decay": "constant"}}
    resolved = resolve(
        JobConfig.model_validate({**DATA, "batch": {"global_size": 524_288}, f"{section}_optimizer": document})
    )
    derived = {number.name: number for number in resolved.derived}
    assert derived[f"{section}_warmup_fraction"].value == 0.5
    assert "2.56, capped at 0.5" in derived[f"{section}_warmup_fraction"].reason
    (warning,) = resolved.warnings
    assert warning.name == "warmup_capped"
    assert warning.message.startswith(f"{section}_optimizer.schedule: scaling legw makes the warm-up 256 times as long")
    fitting = {"schedule": {**document["schedule"], "warmup_fraction": 0.00195}}
    assert "0.00195" in warning.message
    again = resolve(
        JobConfig.model_validate({**DATA, "batch": {"global_size": 524_288}, f"{section}_optimizer": fitting})
    )
    assert again.warnings == []


def test_a_warm_up_as_asked_gives_no_warning():
    resolved = resolve(JobConfig.model_validate(DATA))
    derived = {number.name: number for number in resolved.derived}
    assert (derived["dense_warmup_fraction"].value, derived["table_warmup_fraction"].value) == (0.1, 0.0)
    assert resolved.warnings == []


def test_schedule_free_has_a_constant_rate_after_the_warm_up_of_the_others():
    for document in (
        {},
        {"schedule": {"warmup_fraction": 0.1}},
        {"schedule": {"decay": "constant"}},
    ):
        schedule = DenseOptimizerConfig.model_validate({"name": "schedule_free", **document}).schedule
        assert schedule == DenseOptimizerConfig().schedule.model_copy(update={"decay": "constant"})


def test_schedule_free_refuses_variance_reduction_of_its_update():
    document = {**DATA, "dense_optimizer": {"name": "schedule_free"}}
    assert parse_job({**document, "variance_reduction": {}}).variance_reduction is not None
    with pytest.raises(ConfigError) as caught:
        parse_job({**document, "variance_reduction": {"scale": "update"}})
    (error,) = caught.value.errors
    assert error.field == "variance_reduction.scale"
    assert '(valid: "gradient", or another dense_optimizer.name)' in str(error)


def test_naming_one_field_of_a_schedule_changes_no_other():
    document = {
        "data": {"format": "synthetic"},
        "dense_optimizer": {"schedule": {"decay": "cosine"}},
        "table_optimizer": {"schedule": {"scaling": "none"}},
    }
    job, default = JobConfig.model_validate(document), JobConfig.model_validate({"data": {"format": "synthetic"}})
    assert job.dense_optimizer.schedule == default.dense_optimizer.schedule.model_copy(update={"decay": "cosine"})
    assert job.table_optimizer == default.table_optimizer
