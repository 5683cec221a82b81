from typing import Any

import pytest

from dlrm.config import JobConfig, find_warm_start_faults, make_identity, parse_job, replace_warm_start_source

FILES = {"train": ["day.tsv"]}


def job(**sections: Any) -> JobConfig:
    return JobConfig.model_validate({"data": FILES, **sections})


def warm(optimizer_state: bool = False, **sections: Any) -> JobConfig:
    return job(run={"warm_start": {"from": "old", "optimizer_state": optimizer_state}}, **sections)


def faults(new: JobConfig, old: JobConfig, has_checkpoint: bool = True) -> dict[str, str]:
    model, data = old.model.model_dump(mode="json"), old.data.model_dump(mode="json")
    found = find_warm_start_faults(new, model, data, make_identity(old) if has_checkpoint else None)
    return {fault.field: fault.valid for fault in found}


def synthetic(num_ids: int) -> dict[str, Any]:
    return {"format": "synthetic", "synthetic": {"num_ids": num_ids}}


def test_the_same_settings_fit_and_so_do_others_that_shape_no_weights():
    assert faults(warm(), job()) == {}
    assert faults(warm(True), job()) == {}
    others = {"batch": {"global_size": 512}, "table_optimizer": {"learning_rate": 0.5}, "precision": "bf16"}
    assert faults(warm(True, **others), job()) == {}
    assert faults(warm(dense_optimizer={"name": "sgd"}), job()) == {}


def test_every_field_that_shapes_the_weights_must_be_the_same():
    model = {"embedding_dim": 8, "bottom_mlp": [16, 8], "top_mlp": [16, 1]}
    assert faults(warm(model=model), job()) == {
        "model.embedding_dim": "64",
        "model.bottom_mlp": "[512, 256, 64]",
        "model.top_mlp": "[512, 256, 1]",
    }


def test_the_task_that_differs_is_named_with_its_field():
    def tasked(*tasks: dict[str, Any]) -> dict[str, Any]:
        further = [{"name": "bought"}]
        data = {"train": ["rows.csv"], "format": "csv", "schema": {"further_labels": further, "dense": [{"name": "x"}]}}
        return {"data": data, "model": {"tasks": [{"name": "click"}, *tasks]}, "run": {"warm_start": {"from": "old"}}}

    buy = {"name": "buy", "label": "bought"}
    given, alone, one = (JobConfig.model_validate(tasked(*tasks)) for tasks in ([{**buy, "given": "click"}], [buy], []))
    untasked = JobConfig.model_validate({**tasked(), "model": {}})
    anew = "; or train a model of other tasks anew, without run.warm_start"
    assert faults(given, alone) == {"model.tasks.1.given": f"null{anew}"}
    assert faults(alone, given) == {"model.tasks.1.given": f'"click"{anew}'}
    assert faults(one, alone) == {"model.tasks": f'["click", "buy"]{anew}'}
    assert faults(alone, untasked) == {"model.tasks": f"null{anew}"}
    assert faults(alone, alone) == {}


def test_optimizers_must_be_the_same_where_their_state_is_kept():
    other = warm(True, dense_optimizer={"name": "sgd"}, table_optimizer={"name": "sgd"})
    assert faults(other, job()) == {
        "dense_optimizer.name": '"adam", or run.warm_start.optimizer_state = false',
        "table_optimizer.name": '"rowwise_adagrad", or run.warm_start.optimizer_state = false',
    }
    assert set(faults(warm(True), job(), has_checkpoint=False)) == {"run.warm_start.optimizer_state"}
    assert faults(warm(), job(), has_checkpoint=False) == {}


def test_soap_has_the_factors_that_its_state_has():
    def soap(max_dim: int) -> dict[str, Any]:
        return {"dense_optimizer": {"name": "soap", "max_precondition_dim": max_dim}}

    assert faults(warm(True, **soap(16)), job(**soap(2048))) == {
        "dense_optimizer.max_precondition_dim": "2048, or run.warm_start.optimizer_state = false"
    }
    assert faults(warm(True, **soap(16)), job(**soap(16))) == {}
    assert faults(warm(**soap(16)), job(**soap(2048))) == {}


@pytest.mark.parametrize(
    ("new", "old", "field", "valid"),
    [
        (FILES, synthetic(100), "data.format", '"synthetic"'),
        (synthetic(100), FILES, "data.format", '"criteo_tsv"'),
        (synthetic(99), synthetic(100), "data.synthetic.num_ids", "100 or more"),
    ],
)
def test_data_whose_ids_mean_other_things_is_refused(new: Any, old: Any, field: str, valid: str):
    assert faults(warm().model_copy(update={"data": job(data=new).data}), job(data=old)) == {field: valid}


def test_a_synthetic_log_may_have_more_ids():
    new = warm().model_copy(update={"data": job(data=synthetic(200)).data})
    assert faults(new, job(data=synthetic(100))) == {}


def test_settings_that_are_none_are_a_fault_of_the_model():
    (fault,) = find_warm_start_faults(warm(), {"embedding_dim": "wide"}, {}, None)
    assert (fault.field, fault.message) == ("run.warm_start.from", "the model's settings are damaged at embedding_dim")


def test_the_directory_takes_the_place_of_what_was_named():
    named = warm(True)
    started = replace_warm_start_source(named, "/runs/job_1").run.warm_start
    assert started is not None
    assert started.model_dump() == {"from": "/runs/job_1", "optimizer_state": True}
    assert named.run.warm_start is not None
    assert named.run.warm_start.source == "old"


def test_what_the_document_leaves_open_fits_any_model():
    old = job(model={"architecture": "dcn_v2", "embedding_dim": 8, "bottom_mlp": [16, 8]})
    new = parse_job({"data": FILES, "run": {"warm_start": {"from": "old"}}})
    model, data = old.model.model_dump(mode="json"), old.data.model_dump(mode="json")
    assert find_warm_start_faults(new, model, data, None) == []
    ranks = parse_job({"data": FILES, "model": {"cross_rank": 64}, "run": {"warm_start": {"from": "old"}}})
    assert [fault.field for fault in find_warm_start_faults(ranks, model, data, None)] == ["model.cross_rank"]
