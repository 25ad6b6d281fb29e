# SPDX-License-Identifier: Apache-2.0
"""The environment: its facts, and the verdicts on them."""

from dataclasses import dataclass

from truestep.core.result_display import RenderableType, Result
from truestep.machine.environment.facts import Machine, read_machine
from truestep.machine.environment.verdicts import EnvironmentVerdict, judge_machine


@dataclass(frozen=True, kw_only=True)
class Environment(Result):
    """The machine's facts and the verdicts on them."""

    machine: Machine
    verdicts: tuple[EnvironmentVerdict, ...]

    @property
    def failed(self) -> tuple[EnvironmentVerdict, ...]:
        """The verdicts that fail."""
        return tuple(verdict for verdict in self.verdicts if verdict.status == "fail")

    def __rich__(self) -> RenderableType:
        from truestep.machine.environment.screen import environment_table

        return environment_table(self)


def environment(*, real_import: bool = False) -> Environment:
    """Return what this machine offers to training, with a verdict on each way in which it can be wrong.

    Torch is not imported here: its compiled part is asked in a child process (0.2 s), so that a broken
    torch is a report and not a crash. `real_import` runs the whole `import torch` there (about 1 s).
    Where torch is imported already, that one is asked, and CUDA is not started.
    """
    machine = read_machine(real_import=real_import)
    return Environment(machine=machine, verdicts=judge_machine(machine))
