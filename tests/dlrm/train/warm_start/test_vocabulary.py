"""The vocabulary that a run goes on with, kept in its directory."""

import json
import os
import shutil
from pathlib import Path

import pytest

from dlrm.config import DataConfig, JobConfig, ResolvedJob, resolve
from dlrm.data.encode.encoders import Encoders
from dlrm.data.encode.vocabulary import CountedVocabulary
from dlrm.data.errors import DataError
from dlrm.record import RunDirectory
from dlrm.train.warm_start.vocabulary import load_base_encoders
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.model_factory import SIZES, made_model

SCHEMA = {"dense": [{"name": "age"}], "categorical": [{"name": "site"}, {"name": "user", "type": "integer"}]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Trained on rows of twelve sites."""
    rows = tmp_path / "rows.csv"
    rows.write_text("label,age,site,user\n" + "".join(f"{n % 2},{n},s{n % 12},{n % 5}\n" for n in range(200)))
    data = DataConfig.model_validate({"train": [str(rows)], "format": "csv", "schema": SCHEMA})
    packed = prepare_in_cache(data, tmp_path)
    made_model(tmp_path / "model", data, packed)
    return tmp_path / "model"


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def job_from(model: Path) -> ResolvedJob:
    data = json.loads((model / "config.json").read_text())["data"]
    run = {"warm_start": {"from": str(model)}}
    return resolve(JobConfig.model_validate({"model": SIZES, "data": data, "batch": {"global_size": 8}, "run": run}))


def sites_of(encoders: Encoders | None) -> list[str]:
    assert encoders is not None
    vocabulary = encoders.vocabularies[0]
    assert isinstance(vocabulary, CountedVocabulary)
    return vocabulary.distinct.to_list()


def empty_all_files(kept: Path) -> None:
    """As a power cut leaves files that were named before they were on disk."""
    for file in kept.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")


def test_it_is_kept_and_the_model_needed_no_more(model: Path, directory: RunDirectory) -> None:
    resolved = job_from(model)
    first = sites_of(load_base_encoders(resolved, directory))
    assert sorted(first) == sorted(f"s{number}" for number in range(12))
    shutil.rmtree(model)
    assert sites_of(load_base_encoders(resolved, directory)) == first
    assert [path.name for path in directory.path.iterdir()] == ["base"]


def test_one_that_cannot_be_read_is_made_anew_from_the_model(model: Path, directory: RunDirectory) -> None:
    resolved = job_from(model)
    first = sites_of(load_base_encoders(resolved, directory))
    empty_all_files(directory.base)
    assert sites_of(load_base_encoders(resolved, directory)) == first
    shutil.rmtree(model)
    assert sites_of(load_base_encoders(resolved, directory)) == first


def test_one_that_cannot_be_read_and_whose_model_is_gone_names_both(model: Path, directory: RunDirectory) -> None:
    resolved = job_from(model)
    load_base_encoders(resolved, directory)
    empty_all_files(directory.base)
    shutil.rmtree(model)
    with pytest.raises(DataError) as error:
        load_base_encoders(resolved, directory)
    said = str(error.value)
    assert said.startswith(f"{directory.base}, run.warm_start.from: contains no encoders to extend: ")
    assert f"nor can they be read from the model again: {model}, run.warm_start.from: is not a directory" in said


def test_all_of_it_is_on_disk_before_it_has_its_name(
    model: Path, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((str(path.relative_to(directory.path)), directory.base.exists()))
        fsync(descriptor)

    resolved = job_from(model)
    monkeypatch.setattr(os, "fsync", noted)
    load_base_encoders(resolved, directory)
    files = [path.relative_to(directory.base) for path in directory.base.rglob("*")]
    assert set(synced[:-1]) == {(str(Path("base.part") / file), False) for file in [Path(), *files]}
    assert synced[-1] == (".", True)
