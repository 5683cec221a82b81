"""Role-based access control by rules alone: who has which role is not asked."""

from dataclasses import dataclass

from tests.kubernetes.fake.errors import ApiError, forbidden
from tests.kubernetes.fake.resources import Json, Resource
from tests.kubernetes.fake.routes import Call


@dataclass(frozen=True)
class Rule:
    """One rule of a role."""

    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = ()
    namespace: str = ""
    """Namespace that the rule holds in, "" for the whole cluster."""

    def allows(self, call: Call) -> bool:
        """Whether the rule allows a call."""
        if not _has(self.verbs, call.verb):
            return False
        if call.resource is None:
            return any(
                url == call.path or (url.endswith("*") and call.path.startswith(url[:-1]))
                for url in self.non_resource_urls
            )
        if self.namespace and call.namespace != self.namespace:
            return False
        if not _has(self.api_groups, call.group) or not self._names(call.resource_name):
            return False
        return not self.resource_names or call.name in self.resource_names

    def _names(self, resource_name: str) -> bool:
        subresource = resource_name.partition("/")[2]
        return _has(self.resources, resource_name) or (bool(subresource) and f"*/{subresource}" in self.resources)


def _has(listed: tuple[str, ...], one: str) -> bool:
    return "*" in listed or one in listed


_BASIC = Rule(("authorization.k8s.io",), ("selfsubjectaccessreviews",), ("create",))
"""Rule for everybody who has a token."""
ANONYMOUS = "system:anonymous"
# Everybody may discover what there is and ask for the version.
_PUBLIC = Rule(
    verbs=("get",),
    non_resource_urls=("/api", "/api/*", "/apis", "/apis/*", "/version", "/livez", "/readyz", "/healthz", "/openapi/*"),
)


class Authoriser:
    """Allows everything until it is given rules."""

    def __init__(self, user: str) -> None:
        self.user = user
        self._rules: list[Rule] | None = None

    def enforce(self, manifests: list[Json]) -> None:
        """Allow only what Roles (in their namespace) and ClusterRoles (everywhere) say.

        A ClusterRole that RoleBindings among the manifests refer to holds in their namespaces alone, unless a
        ClusterRoleBinding refers to it as well.
        """
        self._rules = [_PUBLIC]
        bindings = [one for one in manifests if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
        for manifest in manifests:
            if manifest["kind"] not in ("Role", "ClusterRole"):
                continue
            for namespace in _namespaces_of(manifest, bindings):
                self._rules += [_parse_rule(rule, namespace) for rule in manifest.get("rules") or []]

    def review(self, question: Json) -> Json:
        """Return the answer to a SelfSubjectAccessReview."""
        asked: Json = question["spec"].get("resourceAttributes") or {}
        version, plural = asked.get("version", "v1"), asked.get("resource", "")
        resource = Resource(asked.get("group", ""), version, plural, plural)
        names = (asked.get("subresource", ""), asked.get("namespace", ""), asked.get("name", ""))
        call = Call("POST", "", {}, asked.get("verb", ""), resource, *names)
        allowed = self._rules is None or any(rule.allows(call) for rule in self._rules)
        return {**question, "status": {"allowed": allowed}}

    def check(self, call: Call, is_anonymous: bool = False) -> None:
        """Raise 403 for a call that no rule allows. Who has no token is nobody, and may only look at the version."""
        user = ANONYMOUS if is_anonymous else self.user
        rules = [_PUBLIC] if is_anonymous else self._rules
        rules = rules if rules is None or is_anonymous else [*rules, _BASIC]
        if rules is None or any(rule.allows(call) for rule in rules):
            return
        if call.resource is None:
            why = f'User "{user}" cannot {call.verb} path "{call.path}"'
            raise ApiError(403, "Forbidden", f"forbidden: {why}", {})
        scope = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
        what = f'resource "{call.resource_name}" in API group "{call.group}"'
        why = f'User "{user}" cannot {call.verb} {what} {scope}'
        raise forbidden(call.resource, call.name, why)


def _namespaces_of(role: Json, bindings: list[Json]) -> list[str]:
    if role["kind"] == "Role":
        return [role["metadata"].get("namespace", "default")]
    name = role["metadata"]["name"]
    binding = [one for one in bindings if one["roleRef"]["kind"] == "ClusterRole" and one["roleRef"]["name"] == name]
    if not binding or any(one["kind"] == "ClusterRoleBinding" for one in binding):
        return [""]
    return [one["metadata"].get("namespace", "default") for one in binding]


def _parse_rule(rule: Json, namespace: str) -> Rule:
    return Rule(
        tuple(rule.get("apiGroups") or ()),
        tuple(rule.get("resources") or ()),
        tuple(rule.get("verbs") or ()),
        tuple(rule.get("resourceNames") or ()),
        tuple(rule.get("nonResourceURLs") or ()),
        namespace,
    )
