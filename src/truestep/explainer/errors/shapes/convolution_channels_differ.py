# SPDX-License-Identifier: Apache-2.0
"""ConvolutionChannelsDiffer."""

from truestep.explainer.evidence import running_layer
from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class ConvolutionChannelsDiffer(Explainer):
    """A convolution gets an input with another number of channels than it was made for.

    Means: convolutions read (batch, channels, ...): the second size of the input must be the layer's in_channels.

    Raises:
        layer = nn.Conv2d(3, 8, kernel_size=3)
        layer(torch.zeros(2, 1, 8, 8))

    Works:
        layer = nn.Conv2d(1, 8, kernel_size=3)
        layer(torch.zeros(2, 1, 8, 8))

    Fix: make the first layer for the channels that the images have, or load the images with the channels that
    it expects: image.convert("RGB") gives 3, permute(0, 3, 1, 2) puts channels that are last in second place.
    """

    messages = (
        (
            r"Given groups=(?P<groups>\d+), (?:expected )?weight of size \[?(?P<weight>[\d, ]+)\]?, (?:so )?expected "
            r"input\[?(?P<input>[\d, ]+)\]? "
            r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+)"
        ),
        (
            r"Given transposed=1, weight of size \[(?P<weight>[\d, ]+)\], expected input\[(?P<input>[\d, ]+)\] "
            r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+)"
        ),
    )

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        given, wanted = int(match["given"]), int(match["wanted"])
        sizes = [int(size) for size in match["input"].replace(" ", "").split(",") if size]
        says = f"{running_layer(crash)} has {wanted} input channels; the input ({match['input'].strip()}) has {given}."
        return Cause(says, _fix(given, wanted, sizes))


def _fix(given: int, wanted: int, sizes: list[int]) -> str:
    if sizes[-1] == wanted and len(sizes) > 2:
        order = (0, len(sizes) - 1, *range(1, len(sizes) - 1))
        return f"the channels stand last here: write x.permute{order} before the layer, so that {wanted} comes second."
    if len(sizes) == 4 and sizes[0] == wanted and given != wanted and sizes[0] <= 4:
        return "the batch axis and the channels seem exchanged: write x.transpose(0, 1), or stack samples along axis 0."
    if given == 1 and wanted == 3:
        return 'the images are grey: write image.convert("RGB") when loading, or make the layer for in_channels=1.'
    if given == 4 and wanted == 3:
        return 'the images have an alpha channel: write image.convert("RGB") when loading them.'
    return f"make the layer with in_channels={given}, or look at the layer before it, which should give {wanted} channels."
