# SPDX-License-Identifier: Apache-2.0
"""That the ranks of a run are alike: the same code, options and weights at the start, the same weights at every save."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from truestep.core.device_specific import to_float64
from truestep.core.errors import RankError
from truestep.core.state_trees import map_tree_leaves
from truestep.core.text_formatting import keyword_text
from truestep.engine.parts import LearnerParts
from truestep.engine.processes.shards import local_part
from truestep.engine.shared_context import LearnerContext
from truestep.engine.state import learner_settings
from truestep.run.agreement import CODE_OF, RankAgreement
from truestep.run.tracking import TrackedObjects
from truestep.run.user_source_files import CODE_OF_PROCESS
from truestep.run.user_state import run_state_digest

_LARGE = 1_000_000  # numbers of a tracked tensor: hashing more would hold up each save


def refuse_ranks_that_differ(
    agreement: RankAgreement, learners: Mapping[str, LearnerParts], tracked: TrackedObjects
) -> None:
    """Raise an OptionError where a rank's code, options, parameters or tracked names are others than rank 0's."""
    names = {"what run.track keeps (without per_rank=True)": tracked.names_of_shared_objects()}
    agreement.refuse_rank_differences("what they train", lambda: _code_and_parameter_facts(learners) | names)


def _code_and_parameter_facts(learners: Mapping[str, LearnerParts]) -> dict[str, Any]:
    facts: dict[str, Any] = {f"{CODE_OF}{path}": code for path, code in CODE_OF_PROCESS.hashes().items()}
    facts |= {"the torch": str(torch.__version__), "the learners": list(learners)}
    for name, learner in learners.items():
        facts |= {f"{key} of {name!r}": value for key, value in learner_settings(learner).items()}
        facts |= {
            f"the shape of {parameter} of {name!r}": list(weight.shape)
            for parameter, weight in zip(learner.weights.names, learner.weights.parameters, strict=True)
        }
        facts |= _switches_of_learner(name, learner)
    return facts | run_optimizer_options(learners)


def share_run_weights(context: LearnerContext) -> None:
    """Begin with rank 0's weights, buffers and averages on every rank: theirs may be drawn otherwise."""
    if context.world is None:
        return
    for name, learner in context.learners.items():
        tensors = list(learner.module.buffers())
        if not learner.weights.are_divided:  # then they were given to all before they were divided
            tensors += [*learner.module.parameters(), *learner.weights.master_parameters.values()]
        if learner.average is not None and not learner.weights.are_divided:
            tensors += learner.average.tensors
        context.world.broadcast(tensors, f"the weights of {name!r}")


@torch.no_grad()
def run_weight_sums(context: LearnerContext) -> dict[str, list[float]]:
    """Return the sum of each parameter of each learner: bits that differ show in it, unless they cancel."""
    return {
        name: torch.stack([_float64_sum(weight) for weight in learner.weights.parameters]).tolist()
        for name, learner in context.learners.items()
        if not learner.weights.are_divided
    }


def _float64_sum(weight: torch.Tensor) -> torch.Tensor:
    flat = torch.view_as_real(weight) if weight.is_complex() else weight
    return to_float64(flat).sum()


@torch.no_grad()
def tracked_state_marks(tracked: Mapping[str, Any]) -> dict[str, str | None]:
    """Return what tells each object's state from others; of large tensors the sums, since a state may have gigabytes."""
    return {name: _state_digest(state) for name, state in tracked.items()}


@torch.no_grad()
def extra_state_marks(context: LearnerContext) -> dict[str, str | None]:
    """Return what tells each learner's extra states, one of each module that gives some, from others."""
    return {
        f"{path or 'the module'} of {name!r}": _state_digest(part.get_extra_state())
        for name, learner in context.learners.items()
        for path, part in learner.module.named_modules()
        if type(part).get_extra_state is not torch.nn.Module.get_extra_state
    }


def check_extra_states_equal(everybody: list[dict[str, str | None]]) -> None:
    """Raise a RankError that names the first extra state which is not the same on all ranks, and the rank."""
    for name, rank in _names_differing_from_rank_0(everybody):
        raise RankError(
            f"The extra state of {name}, which its get_extra_state() gives, is another on rank {rank} than on rank 0. A "
            "checkpoint keeps rank 0's, for all, so a run that goes on would be another training. Make it of what all ranks have: "
            "run.step for a count, as a rank without an example of the batch need not call the module, and ts.gather(rows) for "
            "what is read from rows."
        )


def _names_differing_from_rank_0(everybody: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Yield each name under which a rank has something else than rank 0, with the rank."""
    for rank, mine in enumerate(everybody):
        for name, first in everybody[0].items():
            if mine.get(name) != first:
                yield name, rank


def _state_digest(state: Any) -> str | None:
    return run_state_digest([map_tree_leaves(_sum_if_large, state)])


def _sum_if_large(leaf: Any) -> Any:
    return _float64_sum(leaf) if isinstance(leaf, torch.Tensor) and leaf.numel() > _LARGE else leaf


def check_tracked_equal_on_ranks(everybody: list[dict[str, str | None]]) -> None:
    """Raise a RankError that names the first tracked object whose state is not the same on all ranks, and the rank."""
    for name, rank in _names_differing_from_rank_0(everybody):
        raise RankError(
            f"The state of what is tracked as {name!r} is another on rank {rank} than on rank 0. A checkpoint keeps rank 0's, for "
            "all, so a run that goes on would be another training. If each process has one of its own (an environment, a buffer "
            f"of its rows), write run.track(per_rank=True, {keyword_text(name)}). "
            "Else give it the same values on all ranks: ts.gather(rows) "
            "returns the rows of all."
        )


@torch.no_grad()
def are_run_weights_finite(context: LearnerContext) -> bool:
    """Whether no weight that is here is NaN or infinite."""
    weights = [
        local_part(weight) for learner in context.learners.values() for weight in learner.weights.parameters
    ]
    measured = [
        weight for weight in weights if weight.numel() and (weight.is_floating_point() or weight.is_complex())
    ]
    # the largest entry of each: not finite where one is not, and never an overflow of its own, as a sum may be
    norms = torch._foreach_norm(measured, float("inf")) if measured else ()
    # together, since on a device each of them would be waited for
    return not norms or bool(torch.stack([torch.isfinite(norm) for norm in norms]).all())


def learner_switches_of_run(context: LearnerContext) -> dict[str, Any]:
    """Return what the loop may have switched in each learner."""
    return {
        what: value
        for name, learner in context.learners.items()
        for what, value in _switches_of_learner(name, learner).items()
    }


def _switches_of_learner(name: str, learner: LearnerParts) -> dict[str, Any]:
    return {f"{what} of {name!r}": value for what, value in learner.switches.rank_comparison_state().items()}


def run_optimizer_options(learners: Mapping[str, LearnerParts]) -> dict[str, str]:
    """Return the numbers of all optimizers' groups as text: rates, momenta, decays."""
    return {
        f"{option} of {name!r}" + (f" (group {place} of optimizer {number})" if place or number else ""): text
        for name, learner in learners.items()
        for number, optimizer in enumerate(learner.optimizers)
        for place, group in enumerate(optimizer.param_groups)
        for option, value in group.items()
        if (text := _number_text(value)) is not None
    }


def _number_text(value: Any) -> str | None:
    """Return numbers, and tuples of them, as text; a rate may be a tensor."""
    if isinstance(value, torch.Tensor):
        return repr(float(value)) if value.numel() == 1 else None
    if isinstance(value, tuple):
        return repr([_number_text(each) for each in value])
    return repr(value) if isinstance(value, bool | int | float) else None


def check_switches_equal_on_ranks(everybody: list[dict[str, Any]]) -> None:
    """Raise a RankError that names the first switch which is not the same on all ranks, and the rank."""
    for what, rank in _names_differing_from_rank_0(everybody):
        raise RankError(
            f"The ranks don't train the same: {what} is {everybody[0][what]} on rank 0 and {everybody[rank].get(what)} on rank "
            f"{rank}. Set it on all ranks alike, not under `if run.is_main:`; a checkpoint keeps what rank 0 has, so nothing was "
            "saved."
        )


def check_weights_equal_on_ranks(context: LearnerContext, everybody: list[dict[str, list[float]]]) -> None:
    """Raise a RankError that names the first parameter which is not the same on all ranks, and the rank."""
    for rank, sums in enumerate(everybody):
        for name, learner in context.learners.items():
            if name not in sums:
                continue
            for parameter, mine, first in zip(
                learner.weights.names, sums[name], everybody[0][name], strict=True
            ):
                # as text, in which NaN is equal to itself
                if repr(mine) != repr(first):
                    raise RankError(
                        f"The weights of {name!r} are not the same on all ranks any more: {parameter} sums up to {first!r} on rank "
                        f"0 and to {mine!r} on rank {rank}. Something has changed them outside of updates, on one rank alone; what "
                        "rank 0 holds was not saved."
                    )
