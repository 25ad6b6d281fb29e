# SPDX-License-Identifier: Apache-2.0
"""main() of train.py for one epoch of made-up music, and again from its weights, as -continue_weights does."""

import sys

import torch
from absent import stand_ins
from torch.utils.data import TensorDataset

stand_ins(
    "third_party", "third_party.midi_processor", "third_party.midi_processor.processor"
)  # a submodule of git
processor = sys.modules["third_party.midi_processor.processor"]
processor.RANGE_NOTE_ON, processor.RANGE_NOTE_OFF, processor.RANGE_VEL, processor.RANGE_TIME_SHIFT = (
    128,
    128,
    32,
    100,
)
import train
from model import music_transformer

music_transformer.DummyDecoder.forward = lambda self, tgt, memory, **_options: (
    memory
)  # torch gives it more options now

if __name__ == "__main__":
    torch.manual_seed(0)
    notes = torch.randint(0, 300, (80, 16))
    notes[:, 1:] = (notes[:, :1] + torch.arange(1, 16)) % 300
    data = TensorDataset(notes[:, :-1], notes[:, 1:])
    train.create_epiano_datasets = lambda folder, length: (data, data, data)
    sizes = "-output_dir saved -batch_size 8 -n_layers 1 -num_heads 2 -d_model 16 -dim_feedforward 32 -max_sequence 15"
    sys.argv = ["train.py", *sizes.split(), "-epochs", "1"]
    train.main()
    again = "-epochs 3 -continue_weights saved/weights/epoch_0001.pickle -continue_epoch 1"
    sys.argv = ["train.py", *sizes.split(), *again.split()]
    train.main()
