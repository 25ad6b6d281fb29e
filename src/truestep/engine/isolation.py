# SPDX-License-Identifier: Apache-2.0
"""Keeping an update to its own learners: everybody else is frozen meanwhile and found again as it was."""

from collections.abc import Iterable, Sequence
from typing import Self

from torch import Tensor, nn

from truestep.core.buffers import MovingBufferSnapshot


class LearnerIsolation:
    """While it is entered, the parameters of `others` need no gradient; afterwards they and their buffers are as before.

    Freezing by `requires_grad_` keeps FSDP's hooks working (`backward(inputs=...)` loses gradients there), and the buffers, kept
    before, go back only after the backward, which may still need what the forward wrote.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], buffers: Sequence[MovingBufferSnapshot]) -> None:
        self._parameters = list(parameters)
        self._buffers = buffers
        self._frozen: list[Tensor] = []

    def __enter__(self) -> Self:
        self._frozen = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
        return self

    def __exit__(self, *_: object) -> None:
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen = []
        for buffers in self._buffers:
            buffers.restore()
