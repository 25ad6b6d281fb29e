# SPDX-License-Identifier: Apache-2.0
"""Which of torch's layers drop at random by an option of theirs: where the option stands, and what it is if left out.

`tests/doctor/test_library.py` holds the columns to torch's signatures.
"""

from typing import NamedTuple

# several   how many layers the layer must have for the option to act: its place and name; -: always
# layer                   option at  default  several
_TABLE = """
Transformer               dropout 5  0.1      -
TransformerEncoderLayer   dropout 3  0.1      -
TransformerDecoderLayer   dropout 3  0.1      -
MultiheadAttention        dropout 2  0.0      -
LSTM                      dropout 5  0.0      num_layers 2
GRU                       dropout 5  0.0      num_layers 2
RNN                       dropout 6  0.0      num_layers 2
"""


class DroppingLayer(NamedTuple):
    """One row."""

    layer: str
    option: str
    at: int
    default: float
    several: tuple[int, str] | None


def _row(layer: str, option: str, at: str, default: str, *several: str) -> DroppingLayer:
    needed = (int(several[1]), several[0]) if len(several) == 2 else None
    return DroppingLayer(layer, option, int(at), float(default), needed)


DROPPING_LAYERS = {
    f"torch.nn.{each.layer}": each for each in (_row(*line.split()) for line in _TABLE.strip().splitlines())
}
