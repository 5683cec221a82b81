"""Parameter groups of an optimizer: dense parameters with the settings to train them with."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch.nn import Parameter

from dlrm.config import DenseOptimizerConfig, ParameterGroupConfig
from dlrm.data.errors import DataError

FIELD = "dense_optimizer.groups"


@dataclass(frozen=True)
class _Settings:
    rate_factor: float
    weight_decay: float
    is_trust_scaled: bool


def make_parameter_groups(
    config: DenseOptimizerConfig, named_parameters: Sequence[tuple[str, Parameter]]
) -> list[dict[str, Any]]:
    """Return parameter groups for torch.optim: parameters that are trained alike form one group.

    Biases and other vectors have neither weight decay nor trust ratio, unless the group that claims them sets it.
    Raises DataError naming an unclaimed parameter, or a group that claims none.
    """
    claims = _match_groups(config.groups, [name for name, _ in named_parameters])
    members: dict[_Settings, list[Parameter]] = {}
    for (_, parameter), claim in zip(named_parameters, claims, strict=True):
        members.setdefault(_merge_settings(config, claim, parameter), []).append(parameter)
    return [{"params": parameters, **asdict(settings)} for settings, parameters in members.items()]


def _match_groups(groups: Sequence[ParameterGroupConfig], names: Sequence[str]) -> list[ParameterGroupConfig]:
    """Return the group of each parameter: the first one whose pattern matches."""
    if not groups:
        return [ParameterGroupConfig(parameters="*")] * len(names)
    claims: list[ParameterGroupConfig] = []
    for name in names:
        claim = next((group for group in groups if fnmatchcase(name, group.parameters)), None)
        if claim is None:
            raise DataError(f"no group claims {name}", field=FIELD, valid='a last group with parameters "*"')
        claims.append(claim)
    for number, group in enumerate(groups):
        if not any(claim is group for claim in claims):
            message = f"{group.parameters!r} claims no parameter: no name matches, or earlier groups claim the matches"
            valid = f"a pattern that matches some of {', '.join(names)}"
            raise DataError(message, field=f"{FIELD}.{number}.parameters", valid=valid)
    return claims


def _merge_settings(config: DenseOptimizerConfig, claim: ParameterGroupConfig, parameter: Parameter) -> _Settings:
    assert config.weight_decay is not None, "every optimizer has it"
    is_matrix = parameter.ndim >= 2
    return _Settings(
        rate_factor=claim.learning_rate_factor,
        weight_decay=claim.weight_decay if claim.weight_decay is not None else config.weight_decay * is_matrix,
        is_trust_scaled=config.is_trust_scaled and (claim.trust_ratio if claim.trust_ratio is not None else is_matrix),
    )
