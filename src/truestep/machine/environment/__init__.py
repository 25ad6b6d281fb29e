# SPDX-License-Identifier: Apache-2.0
"""What this machine offers to training: torch, CUDA, Python, the machine and its limits, with verdicts."""

from truestep.machine.environment.facts import Machine
from truestep.machine.environment.report import Environment, environment
from truestep.machine.environment.verdicts import EnvironmentVerdict

__all__ = ["Environment", "EnvironmentVerdict", "Machine", "environment"]
