"""Commits of deletion vectors to a table of Delta Lake, which its Python library reads, but does not write."""

import json
import struct
from pathlib import Path

import pyroaring


def add_deletion_vector(path: Path, name: str, rows: list[int]) -> None:
    """Commit a deletion vector for a file, which the library reads, but does not write; see Delta's PROTOCOL.md."""
    bitmap = pyroaring.BitMap(rows).serialize()
    vector = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    logs = sorted((path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action and name.endswith(action["add"]["path"]))
    text = encode_z85(vector)
    described = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(vector), "cardinality": len(rows)}
    remove = {
        "path": add["path"],
        "deletionTimestamp": 0,
        "dataChange": True,
        "partitionValues": add["partitionValues"],
    }
    changed = [{"remove": remove}, {"add": {**add, "deletionVector": described}}]
    (path / "_delta_log" / f"{len(logs):020}.json").write_text("\n".join(map(json.dumps, changed)))


def encode_z85(data: bytes) -> str:
    letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    padded = data + b"\0" * (-len(data) % 4)
    words = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(letters[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
