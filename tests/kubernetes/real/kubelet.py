"""Kubelets of the nodes of a test, which write what pods do to a real API server."""

from tests.kubernetes.fake.errors import ApiError
from tests.kubernetes.fake.resources import Json
from tests.kubernetes.played.kubelet import Kubelet

NOT_FOUND, CONFLICT = 404, 409


class RealKubelet(Kubelet):
    """Kubelets by the script of the fake's: others change and delete pods while they look."""

    def _sync_pod(self, pod: Json) -> None:
        try:
            super()._sync_pod(pod)
        except ApiError as error:
            # It is gone, or another one of this name is there: the next round sees that.
            if error.code not in (NOT_FOUND, CONFLICT):
                raise
