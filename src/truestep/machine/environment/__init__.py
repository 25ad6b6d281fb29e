# SPDX-License-Identifier: Apache-2.0
"""What this machine offers to training: torch, CUDA, Python, the machine and its limits, with verdicts."""

from truestep.machine.environment.report import Environment, EnvironmentVerdict, Machine, environment

__all__ = ["Environment", "EnvironmentVerdict", "Machine", "environment"]
