"""Volumes of a pod on its node, with the owners and modes that a kubelet gives them."""

import base64
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes.utils import parse_quantity

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import SECRETS, Json

SHARED_MODE = 0o2777
"""Mode of an emptyDir: what is made in it belongs to the pod's group."""
CLAIM_MODE = 0o2775


class Volumes:
    """Volumes of one pod. Claims are directories that outlive it, the others are in `directory`."""

    def __init__(self, cluster: Cluster, pod: Json, directory: Path, claims: Mapping[str, Path]) -> None:
        self._cluster = cluster
        self._group: int = pod["spec"]["securityContext"]["fsGroup"]
        self._directory = directory
        self._claims = claims
        self._volumes: dict[str, Json] = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        self._sources: dict[str, Path] = {}

    def make_mounts(self, container: Json) -> list[dict[str, Any]]:
        """Make the mounts of a container, parents first."""
        wanted = sorted(container["volumeMounts"], key=lambda mount: mount["mountPath"])
        return [self._make_mount(mount) for mount in wanted]

    def remove(self) -> None:
        """Remove what ends with the pod."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _make_mount(self, mount: Json) -> dict[str, Any]:
        volume, target = self._volumes[mount["name"]], mount["mountPath"]
        is_read_only = bool(mount.get("readOnly"))
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            num_bytes = int(parse_quantity(volume["emptyDir"]["sizeLimit"]))
            options = f"size={num_bytes},mode={SHARED_MODE:o},gid={self._group}"
            return {
                "source": "tmpfs",
                "target": target,
                "kind": "tmpfs",
                "is_read_only": is_read_only,
                "options": options,
            }
        source = self._find_source(volume)
        claim = volume.get("persistentVolumeClaim")
        if sub_path := mount.get("subPath"):
            mode = source.stat().st_mode & 0o7777
            source = source / sub_path
            if not source.exists():
                self._make_directory(source, mode)
        is_read_only |= "secret" in volume or bool(claim and claim.get("readOnly"))
        return {"source": str(source), "target": target, "is_read_only": is_read_only}

    def _find_source(self, volume: Json) -> Path:
        name: str = volume["name"]
        if name not in self._sources:
            self._sources[name] = self._make_source(volume)
        return self._sources[name]

    def _make_source(self, volume: Json) -> Path:
        path = self._directory / volume["name"]
        if "secret" in volume:
            self._write_secret(path, volume["secret"])
        elif claim := volume.get("persistentVolumeClaim"):
            path = self._claims[claim["claimName"]]
            if not claim.get("readOnly"):
                # fsGroupChangePolicy OnRootMismatch: what is below has the group already.
                os.chown(path, 0, self._group)
                path.chmod(CLAIM_MODE)
        else:
            assert "emptyDir" in volume, f"no kubelet of the tests makes {volume}"
            self._make_directory(path, SHARED_MODE)
        return path

    def _write_secret(self, path: Path, source: Json) -> None:
        """Write the files of a Secret: links to a directory that is replaced as a whole when the Secret changes."""
        secret = self._cluster.get(SECRETS, source["secretName"])
        content = path / "..content"
        for directory in (path, content):
            self._make_directory(directory, 0o2755)
        (path / "..data").symlink_to(content.name)
        for name, text in secret["data"].items():
            file = content / name
            file.write_bytes(base64.b64decode(text))
            os.chown(file, 0, self._group)
            # Of a pod with fsGroup the group may read them, whatever the mode.
            file.chmod(source["defaultMode"] | 0o440)
            (path / name).symlink_to(f"..data/{name}")

    def _make_directory(self, path: Path, mode: int) -> None:
        path.mkdir(parents=True)
        os.chown(path, 0, self._group)
        path.chmod(mode)
