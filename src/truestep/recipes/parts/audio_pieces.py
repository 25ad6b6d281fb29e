# SPDX-License-Identifier: Apache-2.0
"""Sound to train on: a folder of WAV files, or harmonic sounds, cut into pieces of one length."""

import math
import wave
from pathlib import Path

import torch
from torch import Tensor

from truestep.core.errors import DataError

RATE = 8_000
SOUNDS, SECONDS, HARMONICS = 100, 1.024, 24


def harmonic_sounds() -> list[Tensor]:
    """Return the same sounds each time, in [-1, 1]."""
    generator = torch.Generator().manual_seed(0)
    return [_synthesize_sound(generator) for _ in range(SOUNDS)]


def _synthesize_sound(generator: torch.Generator) -> Tensor:
    low, high, first, second = torch.rand(4, generator=generator).tolist()
    time = torch.arange(int(SECONDS * RATE)) / RATE
    ends = 100 * 2.5**low, 100 * 2.5**high
    pitch = ends[0] * (ends[1] / ends[0]) ** (time / SECONDS) * (1 + 0.01 * (2 * math.pi * 5 * time).sin())
    phase = 2 * math.pi * pitch.cumsum(0) / RATE
    number = torch.arange(1, HARMONICS + 1)[:, None]
    frequency = number * pitch
    resonance = _resonance_peak(frequency, 300 + 600 * first) + 0.5 * _resonance_peak(
        frequency, 1000 + 1500 * second
    )
    audible = torch.where(frequency < 0.45 * RATE, resonance / number.sqrt(), 0.0)
    voice = (audible * (number * phase).sin()).sum(0)
    loudness = (0.5 - 0.5 * (2 * math.pi * 2 * time / SECONDS).cos()).square()
    breath = 0.003 * torch.randn(len(time), generator=generator)
    sound: Tensor = 0.5 * voice / voice.abs().max() * loudness + breath
    return sound


def _resonance_peak(frequency: Tensor, centre: float, width: float = 150.0) -> Tensor:
    return (1 + ((frequency - centre) / width).square()).reciprocal()


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
    read = [_read_wav_file(path) for path in paths]
    rate = read[0][1]
    for path, (_, its_rate) in zip(paths, read, strict=True):
        if its_rate != rate:
            raise DataError(
                f"{path} has {its_rate:,} samples a second and {paths[0].name} {rate:,}: at one rate the same sound would have "
                f"another pitch. {_ffmpeg_conversion_hint(path, rate)}"
            )
    return [sound for sound, _ in read], rate


def _read_wav_file(path: Path) -> tuple[Tensor, int]:
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            samples = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise DataError(
            f"{path} can't be read as a WAV file of PCM samples: {error or 'it ends too early'}."
        ) from error
    if width != WIDTH:
        raise DataError(
            f"{path} has {8 * width} bits a sample, and 16 are read. {_ffmpeg_conversion_hint(path, rate)}"
        )
    if channels != 1:
        raise DataError(
            f"{path} has {channels} channels, and one is learnt. {_ffmpeg_conversion_hint(path, rate)}"
        )
    whole = torch.frombuffer(bytearray(samples), dtype=torch.int16) if samples else torch.zeros(0)
    return whole.float() / 32768, rate


def _ffmpeg_conversion_hint(path: Path, rate: int) -> str:
    return f"Convert it: ffmpeg -i {path.name} -ac 1 -ar {rate} -c:a pcm_s16le converted/{path.name}"


HELD_OUT = 10  # every tenth sound


def sound_pieces(folder: Path | None, samples: int) -> tuple[Tensor, Tensor, int]:
    """Return pieces (number, samples) to learn from, pieces of sounds that are held out, and samples per second.

    Without a folder the sounds are harmonic.
    """
    waves, rate = read_wav_folder(folder) if folder is not None else (harmonic_sounds(), RATE)
    held_out = [wave for number, wave in enumerate(waves) if number % HELD_OUT == 0]
    known = [wave for number, wave in enumerate(waves) if number % HELD_OUT]
    if not known:
        raise DataError(
            f"{folder} holds one WAV file alone; every tenth is held out, the first one too. Cut it into several files."
        )
    return (
        cut_sounds_into_pieces(known, samples, folder),
        cut_sounds_into_pieces(held_out, samples, folder),
        rate,
    )


def cut_sounds_into_pieces(waves: list[Tensor], samples: int, folder: Path | None) -> Tensor:
    """Return all whole pieces of so many samples."""
    found = [piece for wave in waves for piece in torch.split(wave, samples) if len(piece) == samples]
    if not found:
        longest = max(map(len, waves))
        raise DataError(
            f"No sound in {folder} is as long as --samples {samples}; the longest has {longest:,} samples. Give a smaller number, "
            "or longer files."
        )
    return torch.stack(found)
