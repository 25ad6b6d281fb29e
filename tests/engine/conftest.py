# SPDX-License-Identifier: Apache-2.0
"""Making learners without a run, and one thread: the tensors are small and the bits must not depend on the machine."""

from itertools import count

import pytest
import torch

from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext

_numbers = count()


def new_learner(module, optimizer=None, context=None, **options):
    optimizer = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1))
    name = options.pop("name", f"learner{next(_numbers)}")
    return Learner(
        module,
        optimizer,
        LearnerOptions(name=name, **options),
        context or LearnerContext(torch.device("cpu"), nonfinite=options.pop("nonfinite", "raise")),
    )


@pytest.fixture(scope="session")
def make_learner():
    """`make_learner(module, optimizer, context, **LearnerOptions)`; session-wide, so that hypothesis may use it."""
    return new_learner


@pytest.fixture(scope="session")
def make_context():
    """`make_context(nonfinite="skip", seed=3)`: what the learners of one training share."""
    return lambda **options: LearnerContext(torch.device("cpu"), **options)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def snapshot():
    """`snapshot(learner)`: everything that an update of another learner, or one that fails, must leave bit for bit."""

    def take(learner):
        parts = dict(learner.module.named_parameters()) | dict(learner.module.named_buffers())
        state = learner.training_state()
        return {
            "tensors": {name: tensor.detach().clone() for name, tensor in parts.items()},
            "gradients": {
                name: None if p.grad is None else p.grad.clone()
                for name, p in learner.module.named_parameters()
            },
            "requires_grad": {name: p.requires_grad for name, p in learner.module.named_parameters()},
            "modes": {name: part.training for name, part in learner.module.named_modules()},
            "state": copied(state),
        }

    return take


def copied(tree):
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: copied(member) for key, member in tree.items()}
    return [copied(member) for member in tree] if isinstance(tree, list) else tree


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.fixture(scope="session")
def same():
    """`same(a, b)`: whether two trees agree bit for bit, NaN included."""

    def compare(first, second):
        if isinstance(first, torch.Tensor):
            return (
                isinstance(second, torch.Tensor)
                and first.dtype == second.dtype
                and first.shape == second.shape
                and bits(first) == bits(second)
            )
        if isinstance(first, dict):
            return first.keys() == second.keys() and all(compare(first[key], second[key]) for key in first)
        if isinstance(first, list | tuple):
            return len(first) == len(second) and all(map(compare, first, second))
        return first == second or (first != first and second != second)

    return compare
