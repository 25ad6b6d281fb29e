# SPDX-License-Identifier: Apache-2.0
"""Sequences of different lengths through a recurrent layer, without computing on padding."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from truestep.core.errors import BatchError, OptionError
from truestep.core.text_formatting import plural

State = Tensor | tuple[Tensor, Tensor]


def packed(
    rnn: nn.RNNBase, inputs: Tensor, lengths: Tensor | Sequence[int], state: State | None = None
) -> tuple[Tensor, Any]:
    """Run a recurrent layer over padded sequences as if each ran alone; return its outputs and last states.

    Lengths may stand in any order: outputs and states come back in the caller's. Outputs have the padded size of the inputs, with
    zeros where a sequence is over. States are those after each sequence's own last step; a backward direction begins there.

    Args:
        rnn: `nn.LSTM`, `nn.GRU` or `nn.RNN`, with or without `batch_first`.
        inputs: (batch, time, features) with `batch_first=True`, else (time, batch, features).
        lengths: one whole number of at least 1 for each sequence. Keep them on the host: torch packs by numbers that it has to
            read, so lengths on a device cost one synchronisation.
        state: the first states in the caller's order, as the layer takes them; zeros by default.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html
    """
    if not isinstance(rnn, nn.RNNBase):
        raise OptionError(
            f"ts.packed was given {type(rnn).__name__}; it runs nn.LSTM, nn.GRU or nn.RNN. Other layers need a mask of the padding."
        )
    if inputs.ndim != 3:
        raise BatchError(
            f"inputs has shape {tuple(inputs.shape)}; expected {_expected_shapes_text(rnn)}. One sequence alone needs no packing."
        )
    batch, time = inputs.shape[:2] if rnn.batch_first else (inputs.shape[1], inputs.shape[0])
    numbers = _checked_lengths(lengths, batch, time, _expected_shapes_text(rnn))
    sequences = pack_padded_sequence(inputs, numbers, batch_first=rnn.batch_first, enforce_sorted=False)
    outputs, last = rnn(sequences, state)
    padded, _ = pad_packed_sequence(outputs, batch_first=rnn.batch_first, total_length=time)
    return padded, last


def _expected_shapes_text(rnn: nn.RNNBase) -> str:
    by_time = "(time, batch, features): the layer has batch_first=False"
    return "(batch, time, features)" if rnn.batch_first else by_time


def _checked_lengths(lengths: Tensor | Sequence[int], batch: int, time: int, expected: str) -> Tensor:
    numbers = torch.as_tensor(lengths).cpu()
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool:
        raise BatchError(f"lengths is of type {numbers.dtype}; give whole numbers, one for each sequence.")
    if numbers.shape != (batch,):
        raise BatchError(
            f"lengths has shape {tuple(numbers.shape)} and the batch {batch} sequences; expected one length for each, shape "
            f"({batch},). Inputs are {expected}."
        )
    if batch and (low := int(numbers.min())) < 1:
        rows = [row for row, length in enumerate(numbers.tolist()) if length < 1]
        raise BatchError(
            f"lengths holds {low} (sequences {rows[:6]}): a recurrent layer has no output and no last state without a step. "
            "Leave empty sequences out of the batch: keep = lengths > 0."
        )
    if batch and (high := int(numbers.max())) > time:
        raise BatchError(
            f"lengths holds {high}, and the inputs are padded to {plural(time, 'step')}. Were batch and time exchanged? "
            f"Inputs are {expected}."
        )
    return numbers.to(torch.int64)
