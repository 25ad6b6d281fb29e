# SPDX-License-Identifier: Apache-2.0
"""A gradient penalty whose norm is not that of an example, or that is written for images only."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import QUESTION, At, SourceCheck, Unsure
from truestep.doctor.library.operations import operations
from truestep.doctor.source.live_variables import names_read
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, last_part, walk
from truestep.doctor.source.value_origins import argument, calls_behind, literal

_SIZED = operations(shape="sized other turned")


class PenaltyOfOtherAxes(SourceCheck):
    """The gradients of a penalty on images are normed along axis 1 without being flattened, or it mixes by (n, 1, 1, 1) weights.

    Why: axis 1 is the channels: each pixel's gradient is pulled to the norm that the whole example's should have. Weights
    of four axes mix data of shape (n, d) to (n, 1, n, d): every pair, silently.

    Bad:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 8)

            def forward(self, x):
                return self.conv(x).flatten(1)

        critic = Critic()
        mixed = torch.randn(8, 1, 8, 8, requires_grad=True)
        gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()  # here

    Good:
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(1, 1, 8)

            def forward(self, x):
                return self.conv(x).flatten(1)

        critic = Critic()
        mixed = torch.randn(8, 1, 8, 8, requires_grad=True)
        gradients = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = ((gradients.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    Fix: gradients.flatten(1) first; torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device), or
    truestep.gradient_penalty.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/dragan/dragan.py:166; the plain form in
    snippet 3 of the notes; beds I, W: 3 true, 0 false.
    """

    code = "GRAD040"
    words = ("autograd",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report `.norm(2, dim=1)` of what autograd.grad gave, where a net of convolutions was differentiated; and the mix."""
        yield from _find_image_mixing_weights(module)
        for call in module.method_calls("norm"):
            assert isinstance(call.func, ast.Attribute)
            source = self._autograd_grad_call(module, call.func.value)
            if source is None or literal(module, argument(call, 1, "dim")) != 1:
                continue
            nets = self._differentiated_models(module, source)
            if any(net is not None and _has_convolutions(module, net) for net in nets):
                yield At(call, "This norm runs over the channels, not over each example: flatten(1) first.")
            elif None in nets or not nets:
                yield Unsure(call, "whether the gradients are those of images can't be seen from here")

    def _autograd_grad_call(self, module: SourceModule, node: ast.expr) -> ast.Call | None:
        """Return the call of autograd.grad that a name stands for, with nothing but `[0]` between."""
        values = module.definitions(node) or [node]
        if len(values) != 1 or not isinstance(values[0], ast.Subscript):
            return None
        made = values[0].value
        is_grad = isinstance(made, ast.Call) and module.qualify(made.func) == "torch.autograd.grad"
        return made if is_grad and isinstance(made, ast.Call) else None

    def _differentiated_models(self, module: SourceModule, gradient: ast.Call) -> set[Class | None]:
        """Return the classes of what was applied to get the outputs."""
        outputs = argument(gradient, 0, "outputs")
        found: set[Class | None] = set()
        for call in calls_behind(module, outputs) if outputs is not None else ():
            if isinstance(call.func, ast.Name) or ast.unparse(call.func).startswith("self."):
                found.add(module.classes.of(call.func))
        return found


def _has_convolutions(module: SourceModule, owner: Class | Function) -> bool:
    """Tell a net of convolutions, unless it views its input first: what it is given may be flat."""
    forward = module.classes.method(owner, "forward") if isinstance(owner, ast.ClassDef) else None
    if forward is not None and len(forward.args.args) > 1:
        given = forward.args.args[1].arg
        views = module.home(forward).method_calls("view", "reshape", "unflatten")
        views = [each for each in views if forward in module.ancestors(each)]
        if any(ast.unparse(each.func).startswith(f"{given}.") for each in views):
            return False
    calls = (each for each in walk(owner) if isinstance(each, ast.Call))
    return any((module.qualify(each.func) or "").startswith("torch.nn.Conv") for each in calls)


def _find_image_mixing_weights(module: SourceModule) -> Iterator[At]:
    """Ask about torch.rand(n, 1, 1, 1) in a penalty of a program that shows no images."""
    for call in module.calls("torch.rand"):
        function = module.scope(call)
        ones = [isinstance(each, ast.Constant) and each.value == 1 for each in call.args[1:]]
        if not (isinstance(function, ast.FunctionDef) and len(call.args) == 4 and all(ones)):
            continue
        differentiates = any(module.scope(each) is function for each in module.calls("torch.autograd.grad"))
        given = {each.arg for each in function.args.args}
        if differentiates and names_read(call.args[0]) & given and not module.program.answer(_has_images):
            text = "The weights have four axes; data of two would be mixed pair by pair."
            yield At(call, text, QUESTION)


def _has_images(files: list[SourceModule]) -> bool:
    """Tell a program with a layer of two dimensions, with sizes of four axes, or that asks for a third."""
    return any(_is_image_operation(each) for file in files for each in file.all(ast.Call, ast.Subscript))


def _is_image_operation(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant(value=2 | 3)):
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant(value=2 | 3)]):
            return True
        case ast.Call(func=func, args=[_, *rest]) if len(rest) > 2 or last_part(func) == "unflatten":
            is_sized = last_part(func) in _SIZED
            return is_sized and not all(isinstance(each, ast.Constant) and each.value == 1 for each in rest)
        case ast.Call(func=func):
            return last_part(func).endswith("2d")
    return False
