# SPDX-License-Identifier: Apache-2.0
"""A decoder that is given what it is to find."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.losses import losses_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import argument, seen_through, unwrapped, value_origins


class TargetGivenToModel(SourceCheck):
    """The tokens that a model is asked for are given to it as they are, unshifted.

    Why: at each place the answer is the input of that place: the loss falls to nearly 0 and the model can generate nothing.

    Bad:
        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

            def forward(self, source, target):
                return self.head(self.embed(source) + self.embed(target))

        model = Decoder()
        source, target = torch.randint(9, (2, 5)), torch.randint(9, (2, 5))
        loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())  # here

    Good:
        class Decoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

            def forward(self, source, target):
                return self.head(self.embed(source) + self.embed(target))

        model = Decoder()
        source, target = torch.randint(9, (2, 5)), torch.randint(9, (2, 5))
        logits = model(source[:, 1:], target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())

    Fix: model(source, target[:, :-1]), and target[:, 1:] for the loss.
    """

    code = "LOSS046"
    words = ("cross_entropy", "CrossEntropy", "nll_loss", "NLLLoss")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss over classes whose target a call of a model is given beside its source."""
        for call in losses_of(module, "cross_entropy", "nll_loss"):
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None or _is_cut(module, target) or _is_cut(module, given):
                continue
            place = dotted(unwrapped(seen_through(module, target) or target))
            models = list(value_origins(module, given))
            if place is not None and models and all(_is_told(module, each, place) for each in models):
                yield At(call, f"The model is given {place!r}, and is asked for it.", RISK)


def _is_cut(module: SourceModule, node: ast.expr) -> bool:
    """Tell whether a part is taken somewhere on the way: shifted by a slice, or the places of a mask."""
    values = [node, *(each for each in module.definitions(unwrapped(node)) if each is not None)]
    return any(isinstance(part, ast.Subscript | ast.Slice) for each in values for part in ast.walk(each))


def _is_told(module: SourceModule, node: ast.expr | None, place: str) -> bool:
    """Tell a model that is given something first, and then this; a label that only some models get is no sequence."""
    if not isinstance(node, ast.Call) or module.kind(node.func) not in ("module", "ddp"):
        return False
    owner = module.class_of(node.func)
    embeds = owner is None or "Embedding" in ast.dump(owner)
    given = [*node.args[1:], *(word.value for word in node.keywords)]
    return embeds and any(dotted(each) == place for each in given)
