"""Models as files."""

import json
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from dlrm.checkpoint import CheckpointError
from dlrm.config import DataConfig, JobConfig, resolve
from dlrm.data.open import open_data
from dlrm.exported_model.export import ExportError, export_model
from dlrm.exported_model.load import load_saved_model
from dlrm.model import encode_table_name
from dlrm.record import TrainedModel
from tests.dlrm.data.packed_files import prepare_in_cache
from tests.dlrm.exported_model.conftest import Made, made_of_csv
from tests.dlrm.exported_model.full_disk import files_of_at_most
from tests.dlrm.exported_model.model_factory import METRICS, SIZES, job_of, made_model, save_weights

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

FILES = {"model.safetensors", "config.json", "encoders", "metrics.json", "MODEL_CARD.md", "manifest.json"}
SYNTHETIC = DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 10}})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Made:
    source = {"from": "/models/yesterday", "optimizer_state": False}
    return made_of_csv(tmp_path_factory.mktemp("exported") / "made", run={"warm_start": source, "seed": 7})


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_model_is_a_directory_whose_weights_have_public_names(exported: Made):
    assert names_in(exported.path) == FILES
    weights = load_file(exported.path / "model.safetensors")
    expected = exported.plain.state_dict()
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(weights[name], tensor), name
    record = TrainedModel.find(exported.path).read_record()
    for name, num_rows in record.table_rows.items():
        assert weights[f"tables.{encode_table_name(name)}.weight"].shape == (num_rows, 4)
    assert json.loads((exported.path / "metrics.json").read_text()) == METRICS


def test_every_file_may_be_read_by_whoever_may_read_one(exported: Made):
    assert len({path.stat().st_mode for path in exported.path.rglob("*") if path.is_file()}) == 1


def test_the_card_has_the_whole_job_and_its_metrics_next_to_the_constant_predictor(exported: Made):
    card = (exported.path / "MODEL_CARD.md").read_text()
    document = re.search(r"```json\n(.*?)\n```", card, re.DOTALL)
    assert document is not None
    assert JobConfig.model_validate(json.loads(document[1])) == job_of(
        exported.data, run={"warm_start": {"from": "/models/yesterday", "optimizer_state": False}, "seed": 7}
    )
    assert "| AUC | 0.75000 | 0.50000 |" in card
    assert "| log-loss | 0.40000 | 0.50000 |" in card
    for said in ("from `/models/yesterday`", f"`{exported.rows}`", "dlrm.load_model", "| `site` | string | counted, "):
        assert said in card
    assert re.search(r"torch \d+\.\d+", card)


def test_a_card_of_unusual_names_still_renders(tmp_path: Path):
    name = "a|b`c\nd"
    rows = tmp_path / "rows.csv"
    rows.write_text("1,2,u\n0,3,v\n" * 50)
    schema = {"dense": [{"name": "x"}], "categorical": [{"name": name}], "columns": ["label", "x", name]}
    data = DataConfig.model_validate(
        {"train": [str(rows)], "format": "csv", "schema": schema, "vocabulary": {"columns": {name: {"hash_size": 50}}}}
    )
    packed = prepare_in_cache(data, tmp_path)
    made_model(tmp_path / "model", data, packed, metrics={})
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert "| `` a\\|b`c\N{REPLACEMENT CHARACTER}d `` | string | hashed into 50 table rows |" in card
    assert "Nothing: the run ended before its first evaluation." in card
    assert load_saved_model(tmp_path / "model").columns == ["x", name]


@pytest.mark.parametrize(
    ("schema", "taken"),
    [
        ({"dense": [{"name": "x"}]}, "from 1 dense feature."),
        ({"categorical": [{"name": "site"}]}, "from 1 embedding table of 4 rows by 4 (0.0 MB)."),
    ],
)
def test_a_card_names_the_kinds_of_columns_that_there_are(tmp_path: Path, schema: dict[str, Any], taken: str):
    rows = tmp_path / "rows.csv"
    rows.write_text("label,x,site\n" + "1,2.5,u\n0,3.5,v\n" * 50)
    data = DataConfig.model_validate({"train": [str(rows)], "format": "csv", "schema": schema})
    packed = prepare_in_cache(data, tmp_path)
    made_model(tmp_path / "model", data, packed, model={**SIZES, "architecture": "dcn_v2"})
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    assert f"A click-through-rate model (dcn_v2): the probability that a row's label is 1, {taken}" in card
    assert ("share one row of each table" in card) == ("categorical" in schema)
    document = re.search(r"```json\n(.*?)\n```", card, re.DOTALL)
    assert document is not None
    assert JobConfig.model_validate(json.loads(document[1])).model.cross_layers == 3


def test_a_model_of_a_synthetic_log_has_no_encoders(tmp_path: Path):
    made_model(tmp_path / "model", SYNTHETIC, None)
    assert names_in(tmp_path / "model") == FILES - {"encoders"}
    assert "mean nothing elsewhere" in (tmp_path / "model" / "MODEL_CARD.md").read_text()


def test_a_second_export_replaces_the_first_and_the_leftovers_of_kills(tmp_path: Path):
    made_model(tmp_path / "model", SYNTHETIC, None, seed=1)
    for name in ("model.part", "model.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    plain = made_model(tmp_path / "model", SYNTHETIC, None, seed=2)
    assert names_in(tmp_path) == {"model", "model-checkpoint-1", "model-checkpoint-2"}
    found = load_saved_model(tmp_path / "model").module.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in plain.state_dict().items())


KILLED_AT_EVERY_LINE = """
import os, shutil, signal, sys
from pathlib import Path
from typing import Any
from dlrm.exported_model import write_whole as whole

place = Path(sys.argv[1])
model = place / "model"

def write(content):
    with whole.write_whole(model) as part:
        (part / "encoders").mkdir()
        for name in ("encoders/a", "model.safetensors", "MODEL_CARD.md"):
            (part / name).write_text(content)

def whole_content():
    if not model.exists():
        return None
    manifest = whole.Manifest.model_validate_json((model / "manifest.json").read_bytes())
    found = {name: whole.FileRecord.from_file(model / name) for name in manifest.files}
    assert found == manifest.files
    return (model / "encoders" / "a").read_text()

def kill_at(line):
    left = line
    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != whole.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)

line, seen = 0, set()
while True:
    line += 1
    if place.exists():
        shutil.rmtree(place)
    place.mkdir()
    write("old")
    child = os.fork()
    if child == 0:
        kill_at(line)
        write("new")
        os._exit(0)
    code = os.waitpid(child, 0)[1]
    content = whole_content()
    seen.add(content)
    if content is None:
        assert {path.name for path in place.iterdir()} == {"model.part", "model.old"}
    if code == 0:
        break
    write("next")
    assert whole_content() == "next"
    assert [path.name for path in place.iterdir()] == ["model"]
print(line, sorted(map(str, seen)))
"""


def test_a_kill_at_any_line_leaves_no_mixed_model_and_the_next_export_repairs(
    tmp_path: Path,
):
    command = [sys.executable, "-c", KILLED_AT_EVERY_LINE, str(tmp_path / "place")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    assert ended.returncode == 0, ended.stderr
    num_lines, seen = ended.stdout.split(maxsplit=1)
    assert int(num_lines) > 20
    assert seen.strip() == "['None', 'new', 'old']"


@pytest.mark.parametrize("num_bytes", [0, 100, 2000])
def test_where_the_disk_is_full_the_error_says_so_and_the_old_model_stays(tmp_path: Path, num_bytes: int):
    made_model(tmp_path / "model", SYNTHETIC, None, seed=1)
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    resolved, dataset = resolve(job_of(SYNTHETIC)), open_data(SYNTHETIC, None, None)
    with (
        files_of_at_most(num_bytes),
        pytest.raises(ExportError, match=r"model: the model cannot be written: .*File too large.* take [\d,]+ bytes"),
    ):
        export_model(tmp_path / "model-checkpoint-1", tmp_path / "model", resolved, dataset, METRICS)
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before
    assert not (tmp_path / "model.part").exists()


def test_a_model_needs_no_memory_of_its_size(tmp_path: Path):
    """The memory of one node, where the tables of a run had that of several."""
    data = DataConfig.model_validate({"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 100_000}})
    job = job_of(data, model=SIZES | {"embedding_dim": 64, "bottom_mlp": [8, 64]})
    dataset = open_data(data, None, None)
    expected = save_weights(tmp_path / "checkpoint", job, dataset, seed=0).state_dict()
    num_bytes = [tensor.nbytes for tensor in expected.values()]
    # What is mapped from files does not count.
    private_bytes = 1024 * int(re.findall(r"VmData:\s*(\d+)", Path("/proc/self/status").read_text())[0])
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (private_bytes + sum(num_bytes) // 2, before[1]))
    try:
        export_model(tmp_path / "checkpoint", tmp_path / "model", resolve(job), dataset, METRICS)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert sum(num_bytes) > max(3 * max(num_bytes), 50_000_000)
    found = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_checkpoint_that_cannot_be_read_is_one_error_and_leaves_nothing(tmp_path: Path):
    made_model(tmp_path / "model", SYNTHETIC, None)
    shutil.rmtree(tmp_path / "model")
    for file in (tmp_path / "model-checkpoint-0").glob("*.distcp"):
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="model-checkpoint-0: the checkpoint cannot be read"):
        export_model(
            tmp_path / "model-checkpoint-0",
            tmp_path / "model",
            resolve(job_of(SYNTHETIC)),
            open_data(SYNTHETIC, None, None),
            METRICS,
        )
    assert names_in(tmp_path) == {"model-checkpoint-0"}
