"""Controller that writes what quotas allow and what is used of them."""

from fractions import Fraction

from tests.kubernetes.fake.admission import sum_usage
from tests.kubernetes.fake.api import Api
from tests.kubernetes.fake.quantities import format_quantity
from tests.kubernetes.fake.resources import QUOTAS, Json


class QuotaController:
    """Controller of all ResourceQuotas."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def sync(self) -> None:
        """Bring the status of every quota up to date."""
        for quota in self._api.list_all(QUOTAS):
            resources = [one for one in self._api.catalogue if one.is_namespaced]
            total = sum_usage(self._api.store, resources, quota["metadata"]["namespace"])
            hard: Json = quota["spec"].get("hard") or {}
            used = {name: format_quantity(total.get(name, Fraction(0))) for name in hard}
            status = {"hard": hard, "used": used}
            self._api.modify_status(QUOTAS, quota, lambda found, status=status: found.update(status=status))
