from pathlib import Path

from dlrm.data.prepare.unfinished import lock_unfinished


def test_what_a_killed_write_has_left_is_not_in_the_finished_directory(tmp_path: Path) -> None:
    output = tmp_path / "packed"
    with lock_unfinished(output, fingerprint="a", sources="b") as unfinished:
        (unfinished.path / "meta.json").write_text("{}")
        (unfinished.path / ".meta.json.1.part").write_text("{")
        unfinished.finish(output)
    assert [entry.name for entry in output.iterdir()] == ["meta.json"]
