"""Raw rows with lists, weights and missing values."""

from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = {
    "weight": "worth",
    "dense": [{"name": "age"}, {"name": "clicks", "transform": "log"}],
    "categorical": [{"name": "site"}, {"name": "user.tags", "type": "integer", "multi_hot": True}],
}


def write_rows(path: Path, num_rows: int, seed: int = 0) -> Path:
    """CSV rows whose label depends on the site and on how many tags there are."""
    random = np.random.default_rng(seed)
    lines = ["label,worth,age,clicks,site,user.tags"]
    for row in range(num_rows):
        site, tags = random.integers(0, 40), random.integers(0, 9, random.integers(0, 4))
        label = int(random.random() < 0.1 + 0.5 * (site % 2) + 0.1 * len(tags))
        age = "" if row % 7 == 0 else random.integers(18, 90)
        listed = "|".join(map(str, tags))
        lines.append(f"{label},{random.random():.3f},{age},{random.integers(0, 50)},s{site},{listed}")
    path.write_text("\n".join(lines) + "\n")
    return path


def data_of(*files: Path) -> dict[str, Any]:
    return {"train": [str(file) for file in files], "format": "csv", "schema": SCHEMA}
