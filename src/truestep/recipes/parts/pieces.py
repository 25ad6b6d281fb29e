# SPDX-License-Identifier: Apache-2.0
"""Sound to train on: a folder of WAV files, speech of a synthesiser, or harmonic sounds, cut into pieces of one length."""

from pathlib import Path

import torch
from torch import Tensor

from truestep.core.errors import DataError
from truestep.recipes.parts.harmonic import RATE, harmonic_sounds
from truestep.recipes.parts.speech import speak_sentences
from truestep.recipes.parts.wav import read_wav_folder

HELD_OUT = 10  # every tenth sound


def sound_pieces(folder: Path | None, samples: int, kept: Path) -> tuple[Tensor, Tensor, int]:
    """Return pieces (number, samples) to learn from, pieces of sounds that are held out, and samples per second.

    Without a folder a synthesiser speaks into the folder `kept`, once; where there is none, the sounds are harmonic.
    """
    folder = folder or speak_sentences(kept)
    waves, rate = read_wav_folder(folder) if folder is not None else (harmonic_sounds(), RATE)
    held_out = [wave for number, wave in enumerate(waves) if number % HELD_OUT == 0]
    known = [wave for number, wave in enumerate(waves) if number % HELD_OUT]
    if not known:
        raise DataError(
            f"{folder} holds one WAV file alone; every tenth is held out, the first one too. Cut it into several files."
        )
    return cut_sounds(known, samples, folder), cut_sounds(held_out, samples, folder), rate


def cut_sounds(waves: list[Tensor], samples: int, folder: Path | None) -> Tensor:
    """Return all whole pieces of so many samples."""
    found = [piece for wave in waves for piece in torch.split(wave, samples) if len(piece) == samples]
    if not found:
        longest = max(map(len, waves))
        raise DataError(
            f"No sound in {folder} is as long as --samples {samples}; the longest has {longest:,} samples. Give a smaller number, "
            "or longer files."
        )
    return torch.stack(found)
