"""Order and choice of the pieces of advice."""

from dataclasses import replace

from dlrm.gradient_stats.batch_advice import advise as advise_by_noise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.record import Course
from service.advice.advisor import advise
from service.advice.facts import LargeBatch
from service.schemas import AdvisedChange
from tests.service.advice.facts import make_facts


def test_the_most_important_piece_comes_first_and_no_other_changes_the_same_field() -> None:
    progress = {"num_steps": 12, "num_run_samples": 786_432, "global_size": 65_536, "step": 12}
    document = {"batch": {"global_size": 65_536}, "precision": "bf16"}
    facts = make_facts(
        document,
        state="RUNNING",
        progress=progress,
        large_batch=LargeBatch(noise_scale=1000.0, largest_useful_batch=1024),
        messages={"slow_precision": ""},
    )
    answer = advise(facts)
    assert [item.name for item in answer.items] == ["few_steps", "slow_precision"]
    assert answer.items[0].changes == [
        AdvisedChange(field="batch.global_size", value=2048, toml="batch.global_size = 2048")
    ]
    assert answer.note is None


def test_only_the_most_important_piece_sets_the_epochs() -> None:
    course = Course(
        last_step=100,
        num_planned_steps=100,
        best_step=100,
        best_log_loss=0.45,
        last_log_loss=0.45,
        num_evaluations_since_best=0,
        rows="evaluation",
    )
    noise = advise_by_noise({16_384: 6_553_600}, NoiseInterval(3000.0, 4096.0, 5000.0))
    facts = make_facts(
        {"batch": {"global_size": 16_384}, "run": {"epochs": 2.0}},
        progress={"num_steps": 400, "num_run_samples": 6_553_600},
        batch_advice=noise,
        course=course,
        aucs=[(0.74, 0.005), (0.76, 0.005)],
    )
    assert [item.name for item in advise(facts).items] == ["still_improving"]
    assert [item.name for item in advise(replace(facts, course=None)).items] == ["batch_above_noise"]


def test_changes_with_which_the_document_is_invalid_are_not_advised() -> None:
    # Each of the 64 groups of samples needs one.
    document = {"batch": {"global_size": 64}, "moments": {"estimator": "groups", "num_groups": 64}}
    progress = {"num_steps": 2, "num_run_samples": 128, "step": 2}
    answer = advise(make_facts(document, state="RUNNING", progress=progress))
    assert answer.items == []
    assert answer.note == "Too few steps are measured yet: 2 of 10."


def test_values_are_written_in_toml() -> None:
    facts = make_facts({"variance_reduction": {}}, last_step={"share_at_gamma": 0.01, "share_at_one": 0.99})
    [item] = advise(facts).items
    assert [change.toml for change in item.changes] == ["variance_reduction = false"]
