# SPDX-License-Identifier: Apache-2.0
"""Speech of the machine's own synthesiser, if it has one."""

import shutil
import subprocess
from pathlib import Path

from truestep.core.errors import DataError

SYNTHESISER = "espeak-ng"
SENTENCES = [  # about a minute
    f"{number} {what}."
    for number in ("Seven", "Twenty four", "Nine hundred", "Only three", "Almost twelve")
    for what in (
        "green boats lay along the river this morning",
        "young horses ran beyond the quiet hills",
        "old songs were heard under a wide evening sky",
        "loud bells rang in the village below",
    )
]


def speak_sentences(folder: Path) -> Path | None:
    """Have each sentence spoken into a WAV file of a folder, unless it is there; None where there is no synthesiser."""
    if (folder / "spoken").exists():
        return folder
    if shutil.which(SYNTHESISER) is None:
        return None
    folder.mkdir(exist_ok=True)
    for number, sentence in enumerate(SENTENCES):
        path = folder / f"{number:03d}.wav"
        command = [SYNTHESISER, "-v", "en", "-p", str(30 + 7 * (number % 7)), "-w", str(path), sentence]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            raise DataError(
                f"{SYNTHESISER} is installed but failed: {error}. Give a folder of WAV files of your own: --data FOLDER."
            ) from error
    (folder / "spoken").touch()  # all of them
    return folder
