# SPDX-License-Identifier: Apache-2.0
"""Reading a folder of WAV files that are alike."""

import wave
from pathlib import Path

import torch
from torch import Tensor

from truestep.core.errors import DataError

WIDTH = 2  # bytes of a sample


def read_wav_folder(folder: Path) -> tuple[list[Tensor], int]:
    """Return the sounds of a folder's WAV files, in the order of their names, float32 in [-1, 1), and samples per second.

    Raises DataError where there is none, where one can't be read, or is not of 16 bits, one channel and the first one's rate.
    """
    if not folder.is_dir():
        raise DataError(f"There is no folder {folder}. --data takes a folder of WAV files.")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".wav")
    if not paths:
        raise DataError(
            f"{folder} holds no WAV file (a name that ends in .wav); --data takes a folder of those."
        )
    read = [_read(path) for path in paths]
    rate = read[0][1]
    for path, (_, its_rate) in zip(paths, read, strict=True):
        if its_rate != rate:
            raise DataError(
                f"{path} has {its_rate:,} samples a second and {paths[0].name} {rate:,}: at one rate the same sound would have "
                f"another pitch. {_convert(path, rate)}"
            )
    return [sound for sound, _ in read], rate


def _read(path: Path) -> tuple[Tensor, int]:
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            samples = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise DataError(
            f"{path} can't be read as a WAV file of PCM samples: {error or 'it ends too early'}."
        ) from error
    if width != WIDTH:
        raise DataError(f"{path} has {8 * width} bits a sample, and 16 are read. {_convert(path, rate)}")
    if channels != 1:
        raise DataError(f"{path} has {channels} channels, and one is learnt. {_convert(path, rate)}")
    whole = torch.frombuffer(bytearray(samples), dtype=torch.int16) if samples else torch.zeros(0)
    return whole.float() / 32768, rate


def _convert(path: Path, rate: int) -> str:
    return f"Convert it: ffmpeg -i {path.name} -ac 1 -ar {rate} -c:a pcm_s16le converted/{path.name}"
