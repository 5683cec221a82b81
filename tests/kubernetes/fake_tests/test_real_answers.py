"""The fake answers recorded requests as a real API server did.

`real_answers.json` was recorded from kube-apiserver v1.36.2 with its controllers: requests, codes, and the bodies that
are a Status or text. What Go prints of whole structs in messages is cut to {}.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake_tests.answers import send

RECORDED = json.loads((Path(__file__).parent / "real_answers.json").read_text())
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def normalise(answer: Any) -> Any:
    """Return an answer without what differs from run to run."""
    text = json.dumps(answer)
    text = re.sub(UUID, "<uid>", text)
    text = re.sub(r"(precondition|record) \(\d+\)", r"\1 (<version>)", text)
    return json.loads(re.sub(r"Invalid value: \{.*?\}: (?=field is)", "Invalid value: {}: ", text))


class Translation:
    """Uids and versions of the recorded run, and those which this run has in their place."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def learn(self, recorded: list[str] | None, answer: Any) -> None:
        """Note the identity that an object has here."""
        metadata = answer.get("metadata", {}) if isinstance(answer, dict) else {}
        if recorded and metadata.get("uid"):
            self._uids[recorded[0]] = metadata["uid"]
            self._versions[recorded[1]] = metadata.get("resourceVersion", "")

    def translate(self, text: str) -> str:
        """Return a recorded path or body as it must be here."""
        for recorded, here in self._uids.items():
            text = text.replace(recorded, here)
        pattern = r'((?:"resourceVersion"|"value"): ")(\d+)"'
        return re.sub(pattern, lambda found: f'{found[1]}{self._versions.get(found[2], found[2])}"', text)


@pytest.mark.parametrize("scenario", RECORDED["scenarios"], ids=lambda one: one["scenario"])
def test_recorded_requests_have_the_answers_of_a_real_server(scenario: dict[str, Any]) -> None:
    translation = Translation()
    now = 0.0
    with Cluster(strict_fields=False) as cluster:
        for exchange in scenario["exchanges"]:
            cluster.advance(exchange["at"] - now)
            now = exchange["at"]
            body = exchange.get("body")
            raw = body if isinstance(body, str | None) else translation.translate(json.dumps(body))
            kind = exchange.get("contentType", "application/json")
            token = {"nobody": None, "token": "wrong"}.get(exchange.get("as"), "")
            answer = send(cluster, exchange["method"], translation.translate(exchange["path"]), raw, kind, token)
            what = f"{exchange['method']} {exchange['path']} {exchange['note']}"
            assert answer.status == exchange["status"], f"{what}: {answer.data!r}"
            is_json = answer.headers["Content-Type"] == "application/json"
            found = answer.json() if is_json else answer.data.decode()
            translation.learn(exchange.get("identity"), found)
            for name, value in exchange.get("headers", {}).items():
                assert answer.headers.get(name) == value, what
            if "answer" in exchange:
                if isinstance(found, dict):
                    found = {name: found[name] for name in exchange["answer"] if name in found}
                assert normalise(found) == normalise(exchange["answer"]), what
