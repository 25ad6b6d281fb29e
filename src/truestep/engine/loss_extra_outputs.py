# SPDX-License-Identifier: Apache-2.0
"""Tensors that a loss hands out besides its values: a hidden state, predictions, new priorities."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from truestep.core.errors import LossError
from truestep.core.text_formatting import a_type, keyword_text, plural


def check_loss_outputs(outputs: Any) -> dict[str, Tensor]:
    """Return named outputs, or raise a LossError that says what they must be."""
    if not isinstance(outputs, Mapping) or not all(isinstance(name, str) for name in outputs):
        raise LossError(
            f"ts.weighted(outputs=...) was given {a_type(outputs)}; give named tensors, outputs={{'hidden': hidden}}."
        )
    for name, value in outputs.items():
        if not isinstance(value, Tensor) or value.ndim == 0:
            what = "a number" if isinstance(value, Tensor) else f"{a_type(value)}"
            raise LossError(
                f"The output {name!r} is {what}. An output is a tensor with the examples of the batch along one dimension, so that "
                "the parts of a split batch can be put together; give the tensors of a tuple one name each, and values to "
                f"average as metrics: ts.weighted(values, {keyword_text(name, 'value')})."
            )
    return dict(outputs)


class BatchOutputs:
    """The outputs of a batch, part by part; `joined` has them in the order of the batch, however it was split.

    `dim` is the dimension that the examples lie along: that of the batch itself.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._parts: list[dict[str, Tensor]] = []
        self._joined: dict[str, Tensor] | None = None

    def add(self, outputs: Mapping[str, Tensor], num_examples: int | None) -> None:
        """Note what one call of the loss function handed out; nothing of its graph stays."""
        if self._parts and self._parts[0].keys() != outputs.keys():
            raise LossError(
                f"The loss function handed out {sorted(outputs)} for one part of the batch and {sorted(self._parts[0])} for "
                "another; it must give the same names each time."
            )
        for name, value in outputs.items():
            self._check_output(name, value, num_examples)
        self._parts.append({name: _detached_copy(value) for name, value in outputs.items()})

    def _check_output(self, name: str, value: Tensor, num_examples: int | None) -> None:
        dim = min(self.dim, value.ndim - 1)
        if num_examples not in (None, value.shape[dim]):
            raise LossError(
                f"The output {name!r} has shape {tuple(value.shape)}, and the batch {plural(num_examples, 'example')}: they must "
                f"lie along dimension {dim} of it, as in the batch. Move them there (an LSTM's hidden state is (layers, batch, "
                "features): hidden.transpose(0, 1)), or pass split=1 where they lie along dimension 1 of everything."
            )

    @property
    def joined(self) -> dict[str, Tensor]:
        """Each output over the whole batch."""
        if self._joined is None:
            names = self._parts[0] if self._parts else {}
            self._joined = {name: self._join_parts([part[name] for part in self._parts]) for name in names}
        return self._joined

    def _join_parts(self, values: list[Tensor]) -> Tensor:
        return values[0] if len(values) == 1 else torch.cat(values, min(self.dim, values[0].ndim - 1))


def _detached_copy(value: Tensor) -> Tensor:
    """Detach, and copy what the step could still change, or what would keep a larger tensor alive."""
    shares = value.is_leaf or value._base is not None
    return value.detach().clone() if shares else value.detach()
