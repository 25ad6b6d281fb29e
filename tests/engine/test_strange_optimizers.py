# SPDX-License-Identifier: Apache-2.0
"""Optimizers in the forms of other libraries: caches in groups, sets and bytes in states, wrappers, tensors of their own."""

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext


class CacheInGroup(torch.optim.SGD):
    """As torch-optimizer's RAdam: a list in each group that every step writes into."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
        for group in self.param_groups:
            group["buffer"] = [[None, None] for _ in range(4)]
            group["seen"] = {"steps": 0}

    def step(self, closure=None):
        for group in self.param_groups:
            steps = group["seen"]["steps"] = group["seen"]["steps"] + 1
            group["buffer"][steps % 4][:] = [steps, 1.0 / steps]
        return super().step(closure)


class SetInState(torch.optim.SGD):
    """As heavyball: a set and bytes in the states."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                mine = self.state[parameter].setdefault(
                    0, {"is_initialized": set(), "plan": b"\x00\xff", "n": 0}
                )
                mine["is_initialized"].add(mine["n"])
                assert mine["plan"] == b"\x00\xff"
                mine["n"] += len(mine["is_initialized"])
        return super().step(closure)


class OwnTensor(torch.Tensor):
    pass


class TensorOfItsOwnInState(torch.optim.SGD):
    """As torchao's 8-bit AdamW: a subclass of Tensor in the state."""

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter].setdefault("exp_avg", torch.zeros(2).as_subclass(OwnTensor))
        return super().step(closure)


def moved(parameter, gradient, lr):
    parameter.copy_(parameter.float() - lr * gradient.float())


class CompiledInItsStep(torch.optim.SGD):
    """As torchao's: each parameter's step is compiled whole when it is first made."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            step = torch.compile(moved, fullgraph=True, dynamic=False, backend="eager")
            for parameter in group["params"]:
                step(parameter.detach(), parameter.grad, group["lr"])


class Lookahead(torch.optim.Optimizer):
    """As torch-optimizer's: wraps another optimizer and never calls torch's constructor."""

    def __init__(self, optimizer):
        self.optimizer, self.param_groups, self.state = optimizer, optimizer.param_groups, {}
        self.defaults = optimizer.defaults

    def step(self, closure=None):
        return self.optimizer.step(closure)


def trained(directory, make, *, stop_after=None, doctor=False):
    saving = ts.Saving(every_steps=1)
    run = ts.Run(directory, seed=0, quiet=True, progress=False, doctor=doctor, saving=saving)
    net = run.learner(nn.Linear(3, 1), make)
    data = run.data(torch.arange(24.0).view(8, 3) / 24, batch_size=2, shuffle=True)
    for _ in run.epochs(3):
        for rows in run.batches(data):
            net.update(lambda rows: (net(rows).squeeze(1) - rows[:, 0]).square(), rows)
            if run.step == stop_after:
                raise KeyboardInterrupt
    run.close()
    return net.module.weight.detach().clone(), net.optimizers[0].state_dict()


@pytest.mark.parametrize("kind", [CacheInGroup, SetInState])
def test_caches_and_sets_go_on_where_they_were(tmp_path, kind):
    def make(parameters):
        return kind(parameters, lr=0.1)

    weights, state = trained(tmp_path / "whole", make)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", make, stop_after=5)
    found = trained(tmp_path / "cut", make)
    assert torch.equal(found[0], weights)
    assert found[1] == state


def test_a_step_that_is_compiled_under_the_watch_of_the_run_is_a_plain_step(tmp_path):
    found = [
        trained(tmp_path / str(doctor), lambda p: CompiledInItsStep(p, lr=0.1), doctor=doctor)[0]
        for doctor in (True, False)
    ]
    assert torch.equal(*found)


def test_a_wrapper_without_torchs_constructor_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(ts.OptionError, match=r"Lookahead is no whole torch optimizer.*super\(\)\.__init__"):
        trained(tmp_path, lambda p: Lookahead(torch.optim.SGD(p, lr=0.1)))


def test_a_state_that_no_checkpoint_can_hold_is_refused_at_the_first_step(tmp_path):
    learner = Learner(
        nn.Linear(3, 1),
        lambda p: TensorOfItsOwnInState(p, lr=0.1),
        LearnerOptions(name="net"),
        LearnerContext(torch.device("cpu")),
    )
    with pytest.raises(
        ts.OptionError, match=r"'exp_avg' is an OwnTensor, which no checkpoint can hold.*AdamW"
    ):
        learner.update(lambda rows: learner(rows).squeeze(1), torch.ones(4, 3))


class RowsFirst(dict):
    """As a TensorDict: a mapping by name that iterates over its rows."""

    def __iter__(self):
        return iter([RowsFirst(x=row) for row in self["x"]])

    def __bool__(self):
        raise RuntimeError("Converting to a boolean value is not permitted.")


def test_data_that_iterate_over_rows_are_refused_with_what_to_write(tmp_path):
    run = ts.Run(tmp_path, seed=0, quiet=True, progress=False, doctor=False)
    with pytest.raises(ts.BatchError, match=r"run\.data\(dict\(data\.items\(\)\)\)"):
        run.data(RowsFirst(x=torch.ones(4, 3)), batch_size=2)


def test_a_batch_that_iterates_over_rows_is_refused_with_what_to_write(tmp_path):
    with ts.Run(tmp_path, seed=0, quiet=True, progress=False, doctor=False) as run:
        net = run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), micro_batch=2)
        samples = [torch.ones(3)] * 4
        data = run.data(samples, batch_size=4, collate=lambda rows: RowsFirst(x=torch.stack(rows)))
        batches = iter(run.batches(data))
        with pytest.raises(ts.BatchError, match=r"iterates over RowsFirsts.*dict\(data\.items\(\)\)"):
            net.update(lambda batch: net(batch["x"]).squeeze(1), next(batches))
