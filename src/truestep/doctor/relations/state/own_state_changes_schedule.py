# SPDX-License-Identifier: Apache-2.0
"""Check REL015."""

from collections.abc import Iterator

from truestep.doctor.check import QUESTION, RISK
from truestep.doctor.finding import Place
from truestep.doctor.relations.relation import BrokenRelation, StateExperiment, StateRelation


class OwnStateChangesSchedule(StateRelation):
    """A schedule that is given its own state back goes on at other rates.

    Why: a run that is resumed then trains at rates that it would not have had, and nothing shows it.

    Bad:
        class HalvingSchedule:
            def __init__(self, optimizer):
                self.optimizer, self.steps, self.stage = optimizer, 0, 0
            def step(self):
                self.steps += 1
                if self.steps % 5 == 0:
                    self.next_stage()
            def next_stage(self):
                self.stage += 1
                self.optimizer.param_groups[0]["lr"] = 0.1 / 2**self.stage
            def state_dict(self):
                return {"steps": self.steps, "stage": self.stage}
            def load_state_dict(self, state):  # here
                self.steps, self.stage = state["steps"], state["stage"]
                self.next_stage()
        schedule = HalvingSchedule(opt)
        for _ in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                schedule.step()
    Good:
        class HalvingSchedule:
            def __init__(self, optimizer):
                self.optimizer, self.steps, self.stage = optimizer, 0, 0
            def step(self):
                self.steps += 1
                if self.steps % 5 == 0:
                    self.next_stage()
            def next_stage(self):
                self.stage += 1
                self.optimizer.param_groups[0]["lr"] = 0.1 / 2**self.stage
            def state_dict(self):
                return {"steps": self.steps, "stage": self.stage}
            def load_state_dict(self, state):
                self.steps, self.stage = state["steps"], state["stage"]
        schedule = HalvingSchedule(opt)
        for _ in range(2):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
                schedule.step()
    Fix: save all that the next rates are computed from, and have load_state_dict() set that alone.
    Evidence: new, and so preview; what it was tried on stands in benchmarks/doctor/experiments.json.
    """

    code = "REL015"

    def try_out(self, experiment: StateExperiment) -> Iterator[BrokenRelation]:
        """Ask a child what is another one."""
        for each in experiment.lost():
            begin = f"a {each.schedule} that is given its own state back goes on as another: {each.what}"
            told = {"schedule": each.schedule, "changed": each.what}
            if each.is_at_once:
                yield BrokenRelation(f"{begin}, before its next step", RISK, Place.of_text(each.place), told)
            else:
                meant = f"{begin}. Is what its rates depend on saved elsewhere?"
                yield BrokenRelation(meant, QUESTION, Place.of_text(each.place), told)
