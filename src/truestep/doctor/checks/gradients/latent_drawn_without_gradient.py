# SPDX-License-Identifier: Apache-2.0
"""A latent that is drawn by sample()."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in
from truestep.doctor.source.values import argument, behind, value_origins

_REPARAMETERISED = (
    "Normal", "MultivariateNormal", "LogNormal", "Laplace", "Gumbel", "Beta", "Gamma", "Dirichlet", "Uniform",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "LowRankMultivariateNormal", "StudentT", "Cauchy", "Kumaraswamy",
)  # fmt: skip


class LatentDrawnWithoutGradient(SourceCheck):
    """A latent variable is drawn by sample() and decoded, in a program whose loss has its divergence.

    Why: sample() cuts the graph: what the decoder makes of the latent gives the encoder no gradient, and only the
    divergence trains it: it learns to say nothing.

    Bad:
        from torch.distributions import Normal, kl_divergence

        decoder = nn.Linear(3, 4)
        posterior = Normal(net(x), F.softplus(net(x + 1)))
        z = posterior.sample()  # here
        loss = F.mse_loss(decoder(z), x) + kl_divergence(posterior, Normal(0.0, 1.0)).sum(1).mean()
        loss.backward()

    Good:
        from torch.distributions import Normal, kl_divergence

        decoder = nn.Linear(3, 4)
        posterior = Normal(net(x), F.softplus(net(x + 1)))
        z = posterior.rsample()
        loss = F.mse_loss(decoder(z), x) + kl_divergence(posterior, Normal(0.0, 1.0)).sum(1).mean()
        loss.backward()

    Fix: rsample().
    """

    code = "GRAD065"
    words = (".sample(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a draw from what a net gave that goes into a net, where nobody asks for its likelihood."""
        if "kl_divergence" not in module.identifiers:
            return
        for call in module.method_calls("sample"):
            assert isinstance(call.func, ast.Attribute)
            if call.args or call.keywords or _is_without_gradient(module, call):
                continue
            if _is_learned(module, call.func.value) and _is_taken_in(module, call):
                yield At(
                    call,
                    "sample() cuts the graph: what is made of this latent trains no encoder. rsample() is meant.",
                    RISK,
                )


def _is_without_gradient(module: SourceModule, node: ast.AST) -> bool:
    """Tell what stands under no_grad, as a block or as a decorator."""
    for each in module.ancestors(node):
        texts: list[ast.expr] = []
        if isinstance(each, ast.With):
            texts = [item.context_expr for item in each.items]
        elif isinstance(each, ast.FunctionDef):
            texts = each.decorator_list
        if any("no_grad" in ast.unparse(text) or "inference_mode" in ast.unparse(text) for text in texts):
            return True
    return False


def _is_learned(module: SourceModule, node: ast.expr) -> bool:
    """Tell a distribution that is made of what nets compute, here or in the forward of a net of the program."""
    found = [each for each in value_origins(module, node) if isinstance(each, ast.Call)]
    return bool(found) and all(
        _is_made_of_outputs(module, each) or _is_given_by_net(module, each) for each in found
    )


def _is_made_of_outputs(module: SourceModule, call: ast.Call) -> bool:
    name = module.qualify(call.func) or ""
    if not name.startswith("torch.distributions") or name.rsplit(".", 1)[-1] not in _REPARAMETERISED:
        return False
    parts = [
        each
        for position, word in ((0, "loc"), (1, "scale"))
        if (each := argument(call, position, word)) is not None
    ]
    return any(_applies_net(module, each) for part in parts for each in behind(module, part))


def _applies_net(module: SourceModule, call: ast.Call) -> bool:
    owner = module.class_of(call.func)
    return module.kind(call.func) == "module" or (owner is not None and module.class_kind(owner) == "module")


def _is_given_by_net(module: SourceModule, call: ast.Call) -> bool:
    """Tell a net of the program whose forward ends in such a distribution."""
    owner = module.class_of(call.func)
    forward = module.method(owner, "forward") if owner is not None else None
    if forward is None:
        return False
    ends = [each.value for each in module.returns(forward) if isinstance(each.value, ast.Call)]
    names = [(module.qualify(each.func) or "") for each in ends]
    return bool(names) and all(
        each.startswith("torch.distributions") and each.rsplit(".", 1)[-1] in _REPARAMETERISED
        for each in names
    )


def _is_taken_in(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the draw goes into a net in the same function, and into no log_prob there."""
    statement = module.statement(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
    name = dotted(target) if target is not None else None
    if name is None:
        above = module.parents[call]
        return isinstance(above, ast.Call) and _applies_net(module, above)
    scope, taken = module.scope(call), False
    for each in module.all(ast.Call):
        if module.scope(each) is not scope:
            continue
        given = [*each.args, *(word.value for word in each.keywords)]
        if not any(name in names_in(one) or name == dotted(one) for one in given):
            continue
        if isinstance(each.func, ast.Attribute) and each.func.attr in ("log_prob", "step", "numpy"):
            return False
        taken = taken or _applies_net(module, each)
    return taken
