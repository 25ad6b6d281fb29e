# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import describe_running_layer


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

    Cases:
        otherwise: {says}
            Fix: the channels stand last here: write x.permute{order} before the layer, so that {wanted} comes second.
        `exchanged=`: {says}
            Fix: the batch axis and the channels seem exchanged: write x.transpose(0, 1), or stack samples along axis 0.
        `wanted=3;` and `given=1;`: {says}
            Fix: the images are grey: write image.convert("RGB") when loading, or make the layer for in_channels=1.
        `wanted=3;` and `given=4;`: {says}
            Fix: the images have an alpha channel: write image.convert("RGB") when loading them.
        otherwise: {says}
            Fix: make the layer with in_channels={given}, or look at the layer before it, which should give {wanted}
            channels.
    """

    messages = (
        (
            r"Given groups=(?P<groups>\d+), .*weight of size \[?(?P<weight>[\d, ]+)\]?, .*"
            r"input\[?(?P<input>[\d, ]+)\]? to have (?P<wanted>\d+) channels, but got (?P<given>\d+)"
        ),
        (
            r"Given transposed=1, weight of size \[(?P<weight>[\d, ]+)\], expected input\[(?P<input>[\d, ]+)\] "
            r"to have (?P<wanted>\d+) channels, but got (?P<given>\d+)"
        ),
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        given, wanted, size = int(match["given"]), int(match["wanted"]), match["input"].strip()
        sizes = [int(part) for part in size.replace(" ", "").split(",") if part]
        says = f"{describe_running_layer(crash)} has {wanted} input channels; the input ({size}) has {given}."
        if sizes[-1] == wanted and len(sizes) > 2:
            return {"says": says, "order": str((0, len(sizes) - 1, *range(1, len(sizes) - 1)))}
        exchanged = len(sizes) == 4 and sizes[0] == wanted and given != wanted and sizes[0] <= 4
        return {"says": says} | ({"exchanged": "yes"} if exchanged else {})
