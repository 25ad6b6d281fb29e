# SPDX-License-Identifier: Apache-2.0
"""`ts.TensorBoardTracker`: a run's values for TensorBoard, written by `torch.utils.tensorboard`."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truestep.core.errors import MissingPackageError
from truestep.run.trackers.tracker import Tracker, Tracking

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardTracker(Tracker):
    """Writes scalars, histograms, figures, the graph and media as events; needs the extra `[tensorboard]`.

    A run that goes on hides what was written at its step and later (TensorBoard's `purge_step`), and writes what `metrics.jsonl`
    has of that step again. Histograms and figures of that one step are not written again.

    Args:
        directory: where the events go; `tensorboard` in the run's directory by default.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self._directory = None if directory is None else Path(directory).absolute()
        self._writer: SummaryWriter | None = None
        _import_summary_writer()  # a package that is missing is said before the training

    @property
    def writer(self) -> "SummaryWriter":
        """The open `SummaryWriter`, for whatever it takes besides."""
        assert self._writer is not None, "the run has not begun, or has ended"
        return self._writer

    def open(self, tracking: Tracking) -> None:
        """Write a new file of events, from the run's step on."""
        directory = self._directory or tracking.directory / "tensorboard"
        self._writer = _import_summary_writer()(str(directory), purge_step=tracking.step)
        for line in tracking.history():
            if line.step >= tracking.step:
                self.scalars(line.values, line.step, line.epoch)
                for name, media in line.media.items():
                    self.media(name, media.kind, tracking.directory / media.file, line.step)

    def scalars(self, values: Mapping[str, float], step: int, epoch: int) -> None:
        """Add a scalar for each value."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def histogram(self, name: str, counts: Sequence[float], edges: Sequence[float], step: int) -> None:
        """Add a histogram; its sums are those of the bins' middles."""
        middles = [(low + high) / 2 for low, high in pairwise(edges)]
        self.writer.add_histogram_raw(
            name,
            min=edges[0],
            max=edges[-1],
            num=sum(counts),
            sum=sum(count * middle for count, middle in zip(counts, middles, strict=True)),
            sum_squares=sum(count * middle**2 for count, middle in zip(counts, middles, strict=True)),
            bucket_limits=list(edges[1:]),
            bucket_counts=list(counts),
            global_step=step,
        )

    def figure(self, name: str, figure: Any, step: int) -> None:
        """Add a matplotlib figure, which stays open."""
        self.writer.add_figure(name, figure, step, close=False)

    def graph(self, model: Any, batch: Any) -> None:
        """Add the graph that torch's tracer finds in eval mode; the model is left as it was."""
        from truestep.core.module_inspection import as_module
        from truestep.model.calling import preserve_model_state

        module = as_module(model, "run.trackers.graph")
        with preserve_model_state(module), warnings.catch_warnings():
            # torch's writer uses its old tracer, and so does whoever asks for this graph
            warnings.simplefilter("ignore")
            self.writer.add_graph(module.eval(), batch)

    def media(self, name: str, kind: str, path: Path, step: int) -> None:
        """Add a picture, a WAV file's sound, or a text."""
        if kind == "text":
            self.writer.add_text(name, path.read_text(encoding="utf-8"), step)
        elif kind == "image":
            self.writer.add_image(name, _read_image_pixels(path), step, dataformats="HWC")
        elif kind == "audio":
            sound, rate = _read_wav_samples(path)
            self.writer.add_audio(name, sound, step, sample_rate=rate)

    def flush(self) -> None:
        """Bring events that wait into the file."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the file of events."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _import_summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingPackageError(
            "tensorboard is not installed. Install it with: pip install 'truestep[tensorboard]'",
            name="tensorboard",
        ) from error
    return SummaryWriter


def _read_image_pixels(path: Path) -> Any:
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def _read_wav_samples(path: Path) -> tuple[Any, int]:
    """Return 16-bit samples of a WAV file as floats from -1 to 1, shape (1, samples), and their rate."""
    import wave

    import numpy as np
    import torch

    with wave.open(str(path)) as file:
        raw = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").reshape(-1, file.getnchannels())
        return torch.from_numpy(raw[:, 0].astype("float32") / 32768.0)[None], file.getframerate()
