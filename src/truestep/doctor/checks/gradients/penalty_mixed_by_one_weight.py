# SPDX-License-Identifier: Apache-2.0
"""One mixing weight for a whole batch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import SAME_NUMBERS, operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.penalties import mixing_weights, penalties_in, points_of
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.values import constant, seen_through

_OF_SIZES = (
    *functions("draws by sizes"), *sorted(f"torch.{name}" for name in operations(shape="sized")), "torch.Tensor",
    "torch.FloatTensor",
)  # fmt: skip
_OF_ONE = functions("draws a number")
_SAME = SAME_NUMBERS | {"uniform_"}


class PenaltyMixedByOneWeight(SourceCheck):
    """A gradient penalty mixes real and generated examples with one random weight for the whole batch.

    Why: each pair is to be met at a point of its own between the two; with one weight all points of a batch lie at the
    same place, and the critic is held smooth at far fewer places.

    Bad:
        def penalty(critic, real, fake):
            mix = torch.rand(1)  # here
            z = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
            g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
            return ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()

        (net(x).mean() + 10 * penalty(net, x, x + 1)).backward()

    Good:
        def penalty(critic, real, fake):
            mix = torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device)
            z = (mix * real + (1 - mix) * fake.detach()).requires_grad_(True)
            g = torch.autograd.grad(critic(z).sum(), z, create_graph=True)[0]
            return ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()

        (net(x).mean() + 10 * penalty(net, x, x + 1)).backward()

    Fix: torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device), or truestep.gradient_penalty.
    """

    code = "GRAD054"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the draw of a single number by which the points of a penalty are mixed."""
        told: set[ast.AST] = set()
        for call in penalties_in(module):
            for weight in mixing_weights(module, points_of(module, call)):
                draw = _drawn_once(module, weight)
                if draw is not None and draw not in told:
                    told.add(draw)
                    yield At(draw, "One weight is drawn for the whole batch, not one for each example.", RISK)


def _drawn_once(module: SourceModule, weight: ast.expr) -> ast.Call | None:
    """Return the call that draws a single number, through what only moves or expands it."""
    node: ast.expr | None = weight
    for _ in range(2 * MAX_DEPTH):
        node = seen_through(module, node)
        if not isinstance(node, ast.Call):
            return None
        name = module.qualify(node.func) or ""
        if name in _OF_ONE:
            sized = any(word.arg == "size" for word in node.keywords) or len(node.args) > 2
            return None if sized or (name.endswith(".random.random") and node.args) else node
        if name in _OF_SIZES:
            return node if _is_of_one(module, node) else None
        if name or not isinstance(node.func, ast.Attribute) or node.func.attr not in _SAME:
            return None
        node = node.func.value
    return None


def _is_of_one(module: SourceModule, call: ast.Call) -> bool:
    """Tell `torch.rand(1)`, `torch.rand(())`, `torch.rand([1, 1])`."""
    sizes = list(call.args)
    if any(word.arg == "size" or word.arg is None for word in call.keywords):
        return False
    if len(sizes) == 1 and isinstance(first := seen_through(module, sizes[0]), ast.Tuple | ast.List):
        sizes = first.elts
    return all(constant(seen_through(module, each)) == 1 for each in sizes)
