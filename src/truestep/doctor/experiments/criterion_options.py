# SPDX-License-Identifier: Apache-2.0
"""Numbers that a user's criterion is made with, and the changes of them that a child tries."""

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from torch import Tensor, nn

from truestep.core.user_frames import is_library_file
from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.skip_reasons import RelationNotApplicableError

if TYPE_CHECKING:
    from truestep.doctor.experiments.step_experiment import StepExperiment
    from truestep.doctor.relations.examples import Examples

NO_OPTION = "no criterion of the script's own is made with numbers"
_MOST_OPTIONS = 4
_MOST_LABELS = 1000  # of which the most usual one is sought


@dataclass(frozen=True)
class CriterionOption:
    """A number that a criterion holds under the name of an argument that it is made with."""

    criterion: str
    name: str
    value: float


def user_criteria(models: Iterable[nn.Module], names: Mapping[int, str]) -> dict[str, nn.Module]:
    """Return the modules without weights whose forward is the user's, by name."""
    found: dict[str, nn.Module] = {}
    for each in models:
        code = getattr(type(each).forward, "__code__", None)
        if code is None or is_library_file(code.co_filename) or any(True for _ in each.parameters()):
            continue
        name = names.get(id(each)) or type(each).__name__
        found[name if name not in found else f"{name} {len(found)}"] = each
    return found


def demand_options(experiment: "StepExperiment") -> None:
    """Make sure that there is an option to change.

    Raises:
        RelationNotApplicableError: there is none.
    """
    assert experiment.tolerance
    if not any(True for _ in criterion_options(experiment.plan.criteria)):
        raise RelationNotApplicableError(NO_OPTION)


def criterion_options(criteria: Mapping[str, nn.Module]) -> Iterator[CriterionOption]:
    """Yield the options of criteria."""
    for criterion, module in criteria.items():
        arguments = inspect.signature(type(module).__init__).parameters
        for name, value in vars(module).items():
            if name in arguments and type(value) in (int, float):
                yield CriterionOption(criterion, name, value)


def changed_options(experiment: "StepExperiment") -> Iterator[tuple[CriterionOption, Change]]:
    """Yield some options, each with a child's change of it."""
    for option in islice(criterion_options(experiment.plan.criteria), _MOST_OPTIONS):
        if _is_index_option(option) and not experiment.plan.has_batch:
            continue  # which one would show is in the batch
        value = _other_option_value(option, experiment.plan.examples)
        yield option, Change(option=f"{option.criterion}.{option.name}", value=value)


def _other_option_value(option: CriterionOption, examples: "Examples") -> float:
    """Return another value that shows: of an index to ignore, the most usual label."""
    if isinstance(option.value, float):
        return 1.7 * option.value + 0.13
    usual = _most_common_label(examples, option.value) if _is_index_option(option) else None
    return option.value + 1 if usual is None else usual


def _is_index_option(option: CriterionOption) -> bool:
    return not isinstance(option.value, float) and ("ind" in option.name or "pad" in option.name)


def _most_common_label(examples: "Examples", but: float) -> int | None:
    labels: Counter[int] = Counter()
    for item in examples.items:
        leaf = examples.leaves[item]
        if isinstance(leaf, Tensor) and not leaf.is_floating_point() and not leaf.is_complex():
            labels.update(leaf.reshape(-1)[:_MOST_LABELS].tolist())
    labels.pop(int(but), None)
    return labels.most_common(1)[0][0] if labels else None
