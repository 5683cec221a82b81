"""Models of several tasks: what they share, a tower for each, and the logit of one that is given another."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from dlrm.config import ModelConfig, TaskSharingConfig
from dlrm.model.mlp import Linear, Perceptron, draw_weight


class TaskTop(nn.Module):
    """Layers over the interaction: those that tasks share, then a tower for each task, down to its logit.

    With the widths h_1, …, h_k, 1 of top_mlp, x the interaction and t a task, tower t gets

        shared_bottom   f(x), one perceptron of the widths h_1, …, h_k, with a ReLU after each layer
        mmoe            sum_e softmax(G_t x)_e f_e(x), E such perceptrons (Ma et al. 2018, KDD, eq. 5 to 7)
        ple             the last of several levels of such sums (Tang et al. 2020, RecSys, eq. 5 to 8)
    """

    def __init__(self, num_inputs: int, config: ModelConfig, generator: torch.Generator) -> None:
        """Draw the weights: shared layers first, then the towers in the order of the tasks."""
        super().__init__()
        sharing = config.task_sharing or TaskSharingConfig()
        *widths, _logit = config.top_mlp
        self.bottom: Perceptron | None = None
        self.levels = nn.ModuleList()
        if sharing.num_experts is not None:
            num_own, num_levels = sharing.num_task_experts or 0, sharing.num_levels or 1
            for number in range(num_levels):
                self.levels.append(
                    Experts(
                        widths[-1] if number else num_inputs,
                        widths,
                        config.num_tasks,
                        (sharing.num_experts, num_own),
                        generator,
                        is_last=number == num_levels - 1,
                    )
                )
        elif widths:
            self.bottom = Perceptron(num_inputs, widths, is_last_activated=True, generator=generator)
        self.towers = nn.ModuleList(
            Perceptron(
                widths[-1] if widths else num_inputs,
                [*sharing.tower_mlp, 1],
                is_last_activated=False,
                generator=generator,
                # The spacing of bf16 numbers near 1,000 is 4.
                is_last_exact=task.kind == "regression",
            )
            for task in config.tasks or ()
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map [c, num_inputs] to the logits of the towers [c, T]."""
        shared = inputs if self.bottom is None else self.bottom(inputs)
        of_tasks = [shared] * len(self.towers)
        for level in self.levels:
            # What a level has for all tasks comes last, and only the next level reads it.
            of_tasks = level([*of_tasks, shared])
            shared = of_tasks.pop() if len(of_tasks) > len(self.towers) else shared
        return torch.cat([tower(x) for tower, x in zip(self.towers, of_tasks, strict=True)], dim=1)


def make_top(num_inputs: int, config: ModelConfig, generator: torch.Generator) -> Perceptron | TaskTop:
    """Make the last layers of an architecture: a perceptron of the widths of top_mlp, or what tasks have in its
    place."""
    if config.tasks is None:
        return Perceptron(num_inputs, config.top_mlp, is_last_activated=False, generator=generator)
    return TaskTop(num_inputs, config, generator)


class Experts(nn.Module):
    """One level of experts f: x_t' = sum_e softmax(G_t x_t)_e f_e, over the experts of task t and the shared ones.

    An expert of task t gets x_t, a shared one gets x_s. Every level but the last also has x_s', a sum over all experts
    with the gate G_s x_s. In the first level all inputs are the same; without experts of single tasks it is MMoE's.
    """

    def __init__(
        self,
        num_inputs: int,
        widths: Sequence[int],
        num_tasks: int,
        num_experts: tuple[int, int],
        generator: torch.Generator,
        *,
        is_last: bool,
    ) -> None:
        """Draw the weights. widths: of an expert. num_experts: number of shared ones, and of each task's own."""
        super().__init__()
        num_shared, num_own = num_experts

        def make(number: int) -> nn.ModuleList:
            experts = (
                Perceptron(num_inputs, widths, is_last_activated=True, generator=generator) for _ in range(number)
            )
            return nn.ModuleList(experts)

        self.own = nn.ModuleList(make(num_own) for _ in range(num_tasks))
        self.shared = make(num_shared)
        sizes = [num_own + num_shared] * num_tasks + ([] if is_last else [num_tasks * num_own + num_shared])
        self.gates = nn.ModuleList(Linear(num_inputs, size, bias=False) for size in sizes)
        for gate in self.gates:
            assert isinstance(gate, Linear)
            draw_weight(gate, generator)

    def forward(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Map inputs [c, num_inputs] to outputs [c, widths[-1]]: one for each task, then the shared one.

        The last level has no shared output.
        """
        *of_tasks, of_all = inputs
        shared = [expert(of_all) for expert in self.shared]
        own = [[expert(x) for expert in experts.children()] for experts, x in zip(self.own, of_tasks, strict=True)]
        mixed = [[*experts, *shared] for experts in own]
        mixed.append([*(expert for experts in own for expert in experts), *shared])
        return [_mix(gate(x), experts) for gate, x, experts in zip(self.gates, inputs, mixed, strict=False)]


def _mix(gate: torch.Tensor, experts: list[torch.Tensor]) -> torch.Tensor:
    """Sum the experts' outputs, E of [c, h], weighted by the softmax of a gate [c, E]."""
    stacked = torch.stack(experts, dim=1)
    return torch.bmm(F.softmax(gate, dim=1).to(stacked.dtype).unsqueeze(1), stacked).squeeze(1)


def multiply_probabilities(logits: torch.Tensor, parents: Sequence[int | None]) -> torch.Tensor:
    """Multiply the probability of each task with a parent by the parent's (ESMM, Ma et al. 2018, arXiv 1804.07931, eq.
    2), and return the logits [c, T]. logits: [c, T] of the towers; the products are in fp32 under bf16 autocast.

    log p = log sigmoid(z) + log p_parent; the logit is log p - log(1 - p).
    """
    towers = logits.to(torch.promote_types(logits.dtype, torch.float32)).unbind(1)
    found: list[torch.Tensor] = []
    for tower, parent in zip(towers, parents, strict=True):
        if parent is None:
            found.append(tower)
            continue
        log_p = F.logsigmoid(tower) + F.logsigmoid(found[parent])
        # A probability that rounds to 1 keeps a finite logit.
        log_p = log_p.clamp(max=-torch.finfo(log_p.dtype).tiny)
        found.append(log_p - torch.log(-torch.expm1(log_p)))
    return torch.stack(found, dim=1)
