# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import input_sentence


class NormSizesDiffer(Explainer):
    """A normalisation layer was made for another number of channels or features.

    Means: BatchNorm takes the size of axis 1, LayerNorm the last sizes; both are written when the layer is made.

    Raises:
        norm = nn.BatchNorm2d(3)
        norm(torch.zeros(2, 4, 8, 8))

    Works:
        norm = nn.BatchNorm2d(4)
        norm(torch.zeros(2, 4, 8, 8))

    Fix: make the norm with the channels of the layer before it (its out_channels or out_features); for
    LayerNorm over channels of images, put them last with permute(0, 2, 3, 1).

    Cases:
        otherwise: {layer} was made for {wanted}, the input has {given}{shown}.
    """

    messages = (
        r"running_(?:mean|var) should contain (?P<given>\d+) elements not (?P<wanted>\d+)",
        r"weight should contain (?P<given>\d+) elements not (?P<wanted>\d+)",
        r"Given normalized_shape=\[(?P<wanted>[\d, ]+)\], .*but got input of size ?\[(?P<given>[\d, ]+)\]",
        r"Expected weight to be a vector of size equal to the number of channels in input",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        return {"shown": input_sentence(crash).replace(" got an input", ": an input")}
