"""The job document that a tuning ends with."""

import json
import tomllib
from typing import Any

import pytest

from cli.experiments.search.best_document import format_best_document
from dlrm.config import parse_job

SETTINGS: dict[str, Any] = {"model.embedding_dim": 8, "batch.global_size": 512, "dense_optimizer.learning_rate": 0.002}
UNTUNED: dict[str, Any] = {"model.embedding_dim": 16, "batch.global_size": 512, "dense_optimizer.learning_rate": 0.001}
DOCUMENTS = {
    "sections": '# mine\nname = "a"\n\n[data]\ntrain = ["x.csv"]  # the log\n\n[model]\nembedding_dim = 16  # wide\n',
    "inline": 'data = { train = ["x.csv"] }\nmodel = { embedding_dim = 16 }\n',
    "dotted": 'data.train = ["x.csv"]\nmodel.embedding_dim = 16\nmodel.top_mlp = [8, 1]\n',
    "lists": '[data]\ntrain = ["x.csv"]\n[[dense_optimizer.groups]]\npattern = "top*"\n[run]\nepochs = 2\n',
    "nothing": '[data]\ntrain = ["x.csv"]\n',
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_is_the_document_with_the_settings_in_which_the_trial_differs(name: str) -> None:
    source = DOCUMENTS[name]
    document = tomllib.loads(source)
    text = format_best_document(source, document, SETTINGS, UNTUNED, ["The best."])
    expected = json.loads(json.dumps(document))
    for field in ("model.embedding_dim", "dense_optimizer.learning_rate"):
        section, key = field.split(".")
        expected.setdefault(section, {})[key] = SETTINGS[field]
    assert tomllib.loads(text) == expected
    assert text.startswith("# The best.\n\n")


def test_changed_fields_have_a_comment_on_what_they_replace_and_others_keep_theirs() -> None:
    source = DOCUMENTS["sections"]
    text = format_best_document(source, tomllib.loads(source), SETTINGS, UNTUNED, [])
    assert 'train = ["x.csv"]  # the log\n' in text
    assert "embedding_dim = 8 # tuned; untuned: 16, as the document said" in text
    assert "learning_rate = 0.002 # tuned; untuned: 0.001\n" in text
    assert "global_size" not in text


ODD = {
    "a section that --set has replaced": (
        '[data]\ntrain = ["x.csv"]\nformat = "csv"\n[model]\nembedding_dim = 16\n',
        {"data": {"format": "synthetic"}, "model": {"embedding_dim": 16}},
    ),
    "a section added among dotted names": (
        'dense_optimizer.name = "adam"\nrun.epochs = 1\ndata.train = ["x.csv"]\n',
        {
            "dense_optimizer": {"name": "adam", "schedule": {"scaling": "none"}},
            "run": {"epochs": 1},
            "data": {"train": ["x.csv"]},
        },
    ),
}


@pytest.mark.parametrize(("source", "document"), ODD.values(), ids=ODD)
def test_it_says_what_is_meant_whatever_set_has_made_of_the_document(source: str, document: dict[str, Any]) -> None:
    text = format_best_document(source, document, SETTINGS, UNTUNED, ["The best."])
    expected = {**document, "model": {"embedding_dim": 8}}
    expected["dense_optimizer"] = {**document.get("dense_optimizer", {}), "learning_rate": 0.002}
    assert tomllib.loads(text) == expected
    assert text.startswith("# The best.\n\n")


@pytest.mark.parametrize("settings", [SETTINGS, UNTUNED], ids=["a trial was better", "the untuned job is the best"])
def test_the_batch_of_the_trials_is_stated_where_a_preset_would_choose_another(settings: dict[str, Any]) -> None:
    """The trials held validation rows out, so that the preset counts fewer rows for them."""
    document = {"preset": "large_batch", "data": {"train": ["x.csv"]}}
    text = format_best_document(None, document, settings, UNTUNED, [])
    assert tomllib.loads(text)["batch"] == {"global_size": 512}
    without = format_best_document(None, {"data": {"train": ["x.csv"]}}, settings, UNTUNED, [])
    assert "batch" not in tomllib.loads(without)


PRESETS = {
    "sections": 'preset = "large_batch"\n[data]\ntrain = ["x.csv"]\n[dense_optimizer]\nbeta2 = 0.9\n',
    "inline": 'preset = "large_batch"\ndata = { train = ["x.csv"] }\ndense_optimizer = { schedule = {} }\n',
    "nothing": 'preset = "large_batch"\ndata.train = ["x.csv"]\n',
}


@pytest.mark.parametrize("source", PRESETS.values(), ids=PRESETS)
def test_a_tuned_rate_in_the_place_of_a_presets_means_the_same_as_that(source: str) -> None:
    document = tomllib.loads(source)
    text = format_best_document(source, document, SETTINGS, UNTUNED, [])
    best, untuned = parse_job(tomllib.loads(text)), parse_job(document)
    assert best.dense_optimizer.learning_rate == SETTINGS["dense_optimizer.learning_rate"]
    assert best.dense_optimizer.schedule == untuned.dense_optimizer.schedule
    assert best.table_optimizer == untuned.table_optimizer


def test_a_json_document_becomes_toml_with_false_for_a_section_that_is_null() -> None:
    document = {"data": {"train": ["x.csv"], "eval": None}, "moments": None}
    text = format_best_document(None, document, SETTINGS, UNTUNED, [])
    parsed = tomllib.loads(text)
    assert (parsed["data"], parsed["moments"]) == ({"train": ["x.csv"]}, False)
    assert parsed["model"] == {"embedding_dim": 8}
