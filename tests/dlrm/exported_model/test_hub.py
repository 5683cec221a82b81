"""Models as directories for the Hugging Face Hub; where its library is installed, as that library reads them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import dlrm
from dlrm.config import JobConfig
from dlrm.data.errors import DataError
from dlrm.exported_model.hub import write_hub_directory
from dlrm.exported_model.load import ModelError
from dlrm.exported_model.published import make_public_config
from dlrm.programs.evaluate import measure
from tests.dlrm.exported_model.conftest import Made, made_of_csv
from tests.dlrm.exported_model.model_factory import signed


@pytest.fixture
def hub(made: Made, tmp_path: Path) -> Path:
    write_hub_directory(made.path, tmp_path / "hub")
    return tmp_path / "hub"


def read_metadata(hub: Path) -> tuple[dict[str, Any], str]:
    _, metadata, card = (hub / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(metadata), card


def test_the_directory_is_a_model_with_the_same_scores_after_a_download(made: Made, hub: Path, tmp_path: Path) -> None:
    # Downloads are links to files named by their hashes, beside files of the Hub's own, and people edit the card.
    (tmp_path / "blobs").mkdir()
    for number, file in enumerate(path for path in sorted(hub.rglob("*")) if path.is_file()):
        blob = file.rename(tmp_path / f"blobs/{number}")
        file.symlink_to(blob)
    (hub / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (hub / "README.md").write_text("---\nlicense: mit\n" + (hub / "README.md").read_text().removeprefix("---\n"))
    scores, expected = (
        np.concatenate(list(dlrm.load_model(path).predict_files(str(made.rows)))) for path in (hub, made.path)
    )
    np.testing.assert_array_equal(scores, expected)


def test_the_card_is_that_of_the_model_behind_metadata_without_a_license(made: Made, hub: Path) -> None:
    metadata, card = read_metadata(hub)
    assert card.strip() == (hub / "MODEL_CARD.md").read_text().strip()
    own, _ = (made.path / "MODEL_CARD.md").read_text().split("\n## Where it was made")
    assert card.strip().partition("\n## Its job")[0].strip() == own.strip()
    assert {"config.json", "model.safetensors", "README.md"} <= {path.name for path in hub.iterdir()}
    assert "license" not in metadata
    assert (metadata["library_name"], metadata["pipeline_tag"]) == ("dlrm-service", "tabular-classification")
    (entry,) = metadata["model-index"]
    (result,) = entry["results"]
    assert (entry["name"], result["dataset"]["name"]) == ("made", "held-out rows (10 %, by a hash of their number)")
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {
        "roc_auc": 0.75,
        "log_loss": 0.4,
        "normalized_entropy": 0.8,
        "calibration": 1.01,
    }


def test_paths_labels_trackers_and_launcher_stay_private(tmp_path: Path) -> None:
    private: dict[str, Any] = {
        "labels": {"team": "secret-team"},
        "run": {
            "warm_start": {"from": "/models/secret-base"},
            "trackers": {"mlflow": {"uri": "https://secret-server", "experiment": "secret-experiment"}},
        },
        "resources": {"launcher": "kubernetes", "kubernetes": {"image": "secret-registry/image:1"}},
    }
    made = made_of_csv(tmp_path / "secret-directory", **private)
    assert "secret-team" in (made.path / "MODEL_CARD.md").read_text()
    hub = tmp_path / "hub"
    write_hub_directory(made.path, hub)
    texts = [path.read_bytes() for path in hub.rglob("*") if path.is_file()]
    assert not [text for text in texts if b"secret" in text or str(tmp_path).encode() in text]
    document = json.loads((hub / "README.md").read_text().split("```json\n")[1].split("\n```")[0])
    job = JobConfig.model_validate(document)
    assert (job.data.train, job.labels) == (["rows.csv"], {})
    assert job.run.warm_start is not None
    assert job.run.warm_start.source == "another-model"
    assert "Trained from another model" in (hub / "README.md").read_text()
    assert job.model == dlrm.load_model(made.path).config.model
    with pytest.raises(DataError, match="does not say where the rows are"):
        measure(dlrm.load_model(hub), [])


def test_a_published_model_is_published_again_as_it_is(hub: Path, tmp_path: Path) -> None:
    write_hub_directory(hub, tmp_path / "again")
    for name in ("README.md", "MODEL_CARD.md", "config.json", "manifest.json"):
        assert (tmp_path / "again" / name).read_text() == (hub / name).read_text()


def test_nothing_of_the_card_of_the_model_is_published(made: Made, copied: Path, tmp_path: Path) -> None:
    # A card of an earlier version, or one that people have edited, may name what is private anywhere.
    (copied / "MODEL_CARD.md").write_text(
        f"# made\n\nSee {made.rows.parent}/secret.\n\n## Training\n\nImage secret-registry/image:1, team secret-team\n"
    )
    write_hub_directory(copied, tmp_path / "hub")
    write_hub_directory(made.path, tmp_path / "expected")
    for name in ("README.md", "MODEL_CARD.md"):
        assert (tmp_path / "hub" / name).read_text() == (tmp_path / "expected" / name).read_text()


def test_a_model_of_an_earlier_version_without_facts_of_its_rows_has_a_card(copied: Path, tmp_path: Path) -> None:
    settings = json.loads((copied / "config.json").read_text())
    training = settings["training"]
    del training["run"]["warm_start"], training["run"]["trackers"]
    write_hub_directory(signed(copied, rows=None, training=training), tmp_path / "hub")
    _, card = read_metadata(tmp_path / "hub")
    assert "| held out | 10 %, by a hash of their number |" in card
    assert "| AUC | 0.75000 |" in card


@pytest.mark.parametrize(
    ("named", "published"),
    [
        (["/home/x/secret-project/"], ["rows"]),
        (["/home/x/secret-project", "s3://secret-bucket", "s3://secret-bucket/secret/"], ["rows"]),
        (["/home/x/secret.parquet/", "secret/day=1/*"], ["rows"]),
        (["/home/x/secret/day_1.gz", "s3://secret/x/*.PARQUET", "/secret/day_1.gz"], ["day_1.gz", "*.PARQUET"]),
    ],
)
def test_directories_have_no_names_in_public(made: Made, named: list[str], published: list[str]) -> None:
    config = dlrm.load_model(made.path).config
    data = config.data.model_copy(update={"train": named, "eval": named})
    public = make_public_config(config.model_copy(update={"data": data}))
    assert (public.data.train, public.data.eval) == (published, published)
    again = make_public_config(public)
    assert again == public


def test_a_model_that_took_deltas_says_that_nobody_has_measured_it(copied: Path, tmp_path: Path) -> None:
    (copied / "metrics.json").write_text("{}")
    position = {"base": "0" * 64, "order": 2, "checksum": "1" * 64}
    write_hub_directory(signed(copied, step=70, position=position), tmp_path / "hub")
    _, card = read_metadata(tmp_path / "hub")
    assert "Nothing: the weights are of step 70, after 2 deltas, and nobody has measured them." in card


def test_the_library_of_the_hub_reads_the_card_and_its_metrics(hub: Path) -> None:
    hub_library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    data = hub_library.ModelCard.load(hub / "README.md").data
    assert isinstance(data, hub_library.ModelCardData)
    assert (data.model_name, data.license, data.library_name) == ("made", None, "dlrm-service")
    assert {result.metric_type: result.metric_value for result in data.eval_results}["roc_auc"] == 0.75
    # What the library writes is what it has read.
    again = hub_library.ModelCard(f"---\n{data}\n---\ntext").data
    assert again.to_dict() == data.to_dict()


def test_figures_of_further_tasks_and_within_groups_are_in_the_index(tmp_path: Path) -> None:
    further = {"buy.auc": 0.7, "buy.num_rows": 90, "grouped_auc": 0.65, "num_grouped_rows": 50, "ndcg_at_5": 0.5}
    made = made_of_csv(tmp_path, metrics={"auc": 0.75, **further})
    write_hub_directory(made.path, tmp_path / "hub")
    (entry,) = read_metadata(tmp_path / "hub")[0]["model-index"]
    assert [tuple(metric.values()) for metric in entry["results"][0]["metrics"]] == [
        ("roc_auc", "AUC", 0.75),
        ("grouped_auc", "AUC within groups", 0.65),
        ("ndcg_at_5", "NDCG@5 within groups", 0.5),
        ("roc_auc", "buy: AUC", 0.7),
    ]


def test_a_model_without_metrics_has_no_index_of_them(tmp_path: Path) -> None:
    made = made_of_csv(tmp_path, metrics={"num_samples": 8})
    write_hub_directory(made.path, tmp_path / "hub")
    assert "model-index" not in read_metadata(tmp_path / "hub")[0]


def test_a_spoilt_model_is_refused_and_leaves_nothing(copied: Path, tmp_path: Path) -> None:
    (copied / "metrics.json").write_text(json.dumps({"auc": 0.99}))
    with pytest.raises(ModelError, match=r"metrics\.json: has .* instead of"):
        write_hub_directory(copied, tmp_path / "hub")
    assert not list(tmp_path.glob("hub*"))
