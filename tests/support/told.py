# SPDX-License-Identifier: Apache-2.0
"""How a code is told of a small program."""

import textwrap

from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_texts

IMPORTS = """
import copy, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
"""
LOUD = (Severity.BUG, Severity.RISK)


def told(code: str, text: str | dict[str, str]) -> list[Severity]:
    """Return how a code is told of a program, of one file or several."""
    files = {"main.py": text} if isinstance(text, str) else text
    reading = read_texts({name: IMPORTS + textwrap.dedent(each) for name, each in files.items()})
    assert not reading.failures
    return [each.severity for each in reading.findings if each.code == code]


def loud(code: str, text: str | dict[str, str]) -> bool:
    return any(each in LOUD for each in told(code, text))
