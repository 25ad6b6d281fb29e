# SPDX-License-Identifier: Apache-2.0
"""What the vocoder learns from: WAV files that are alike, or harmonic sounds; else a plain message."""

import wave

import pytest
import torch

import truestep as ts
from truestep.recipes.parts.audio_pieces import HELD_OUT, RATE, harmonic_sounds, read_wav_folder, sound_pieces
from truestep.recipes.parts.mel import LogMel


def write(path, samples, *, rate=8_000, channels=1, width=2):
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(b"".join(sample.to_bytes(width, "little", signed=True) for sample in samples))


def test_files_are_read_in_the_order_of_their_names(tmp_path):
    write(tmp_path / "b.wav", [32767, -32768])
    write(tmp_path / "a.WAV", [16384] * 3)
    write(tmp_path / "c.wav", [])
    (tmp_path / "notes.txt").write_text("no sound")
    sounds, rate = read_wav_folder(tmp_path)
    assert [sound.tolist() for sound in sounds] == [[0.5] * 3, [32767 / 32768, -1.0], []]
    assert rate == 8_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rate": 16_000},
            r"b.wav has 16,000 samples a second and a.wav 8,000.*ffmpeg -i b.wav -ac 1 -ar 8000",
        ),
        ({"channels": 2}, "b.wav has 2 channels, and one is learnt"),
        ({"width": 3}, "b.wav has 24 bits a sample, and 16 are read.*pcm_s16le"),
    ],
)
def test_files_that_are_not_alike_are_refused_with_the_way_to_convert_them(tmp_path, options, message):
    write(tmp_path / "a.wav", [0] * 4)
    write(tmp_path / "b.wav", [0] * 4, **options)
    with pytest.raises(ts.DataError, match=message):
        read_wav_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"RIFF", b"no sound at all", b"RIFF\x04\0\0\0WAVE"])
def test_a_file_that_is_no_sound_is_named(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ts.DataError, match=r"a.wav can't be read as a WAV file of PCM samples"):
        read_wav_folder(tmp_path)


def test_a_folder_without_sound_is_refused(tmp_path):
    with pytest.raises(ts.DataError, match=r"holds no WAV file \(a name that ends in .wav\)"):
        read_wav_folder(tmp_path)
    with pytest.raises(ts.DataError, match="There is no folder"):
        read_wav_folder(tmp_path / "none")


def test_every_tenth_sound_is_held_out_and_pieces_are_whole(tmp_path):
    for number in range(HELD_OUT + 1):
        write(tmp_path / f"{number:02}.wav", [number] * 10)
    known, held_out, rate = sound_pieces(tmp_path, 4)
    assert rate == 8_000
    assert (held_out * 32768).unique().tolist() == [0, 10]
    assert (known * 32768).unique().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert known.shape == (9 * 2, 4)


def test_sounds_that_are_too_few_or_too_short_are_refused(tmp_path):
    write(tmp_path / "a.wav", [1] * 10)
    with pytest.raises(ts.DataError, match="one WAV file alone"):
        sound_pieces(tmp_path, 4)
    write(tmp_path / "b.wav", [1] * 12)
    with pytest.raises(ts.DataError, match="as long as --samples 64; the longest has 12 samples"):
        sound_pieces(tmp_path, 64)


def test_without_a_folder_the_sounds_are_harmonic_and_always_the_same():
    known, held_out, rate = sound_pieces(None, 2048)
    assert rate == RATE
    sounds = harmonic_sounds()
    assert held_out[0].equal(sounds[0][:2048])
    assert known.abs().max() <= 1.0
    spectrum = torch.fft.rfft(sounds[0]).abs()
    assert spectrum.square().topk(400).values.sum() > 0.8 * spectrum.square().sum()


def test_a_tone_is_in_its_band_of_the_log_mel_spectrogram():
    mel = LogMel(20, 8_000)
    time = torch.arange(2048) / 8_000
    loudest = [
        mel((6.283185307 * tone * time).sin()[None])[0, :, 16].argmax().item()
        for tone in (300.0, 1000.0, 3000.0)
    ]
    assert loudest == sorted(set(loudest))
    assert mel(torch.zeros(3, 2048)).shape == (3, 20, 32)
    edges = 2595 * torch.log10(torch.tensor([1 + 1000 / 700, 1 + 4000 / 700]))
    assert loudest[1] == int((edges[0] / edges[1] * 21).round()) - 1
