"""Construction of the launchers that the settings name."""

from collections.abc import Callable

from service.launchers.kubernetes.options import KubernetesError, read_options
from service.launchers.kubernetes.pod import PodSettings
from service.launchers.local import LocalLauncher, LocalOptions
from service.launchers.protocol import Capacity, FilePlaces, Launcher
from service.launchers.registry import Launchers
from service.settings import Settings

STOP_MARGIN_SECONDS = 30
"""Seconds beside the grace period of a stop that a pod has to report its end."""


def make_launchers(settings: Settings, service_id: str, on_change: Callable[[], None]) -> Launchers:
    """Make the launchers of a service; each calls `on_change` when one of its attempts should be looked at.

    Raises KubernetesError.
    """
    launchers: dict[str, Launcher] = {}
    for name in settings.launchers:
        match name:
            case "local":
                launchers[name] = LocalLauncher(_make_local_options(settings, service_id), on_change)
            case "kubernetes":
                launchers[name] = _make_kubernetes_launcher(settings, service_id, on_change)
    return Launchers(launchers)


def _make_local_options(settings: Settings, service_id: str) -> LocalOptions:
    return LocalOptions(
        settings.trainer_python,
        Capacity(settings.num_cores, settings.memory_bytes, settings.num_gpus),
        FilePlaces(settings.runs_directory, str(settings.prepared_directory), settings.data_roots),
        settings.url,
        service_id,
        settings.node,
        environment=settings.worker_environment,
    )


def _make_kubernetes_launcher(settings: Settings, service_id: str, on_change: Callable[[], None]) -> Launcher:
    if settings.kubernetes is None:
        raise KubernetesError("DLRM_LAUNCHERS names kubernetes: DLRM_KUBERNETES has to name the file of its settings")
    try:
        # Imported late: a service that needs no cluster needs no client of one.
        from service.launchers.kubernetes.api import connect
        from service.launchers.kubernetes.launcher import KubernetesLauncher
    except ModuleNotFoundError as error:
        advice = "pip install --no-deps -r requirements/kubernetes.txt"
        raise KubernetesError(f"DLRM_LAUNCHERS names kubernetes: {error.name} is not installed: {advice}") from None
    options = read_options(settings.kubernetes, settings.kubernetes_image)
    api, namespace = connect(options.namespace)
    pod_settings = PodSettings(options, int(settings.grace_period_seconds) + STOP_MARGIN_SECONDS)
    return KubernetesLauncher(api, namespace, service_id, pod_settings, on_change)
