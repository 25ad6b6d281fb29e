# SPDX-License-Identifier: Apache-2.0
"""The critic's step goes back into the generator."""

import ast
import re
from collections.abc import Iterable, Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.gan_sides import crossed_optimizers, gan_role_in_source
from truestep.doctor.source.loss_modules import calls_with_graph, is_model_call
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted_name, is_self, last_part, method_of
from truestep.doctor.source.training_actions import CLEAR
from truestep.doctor.source.value_origins import calls_behind

_MOST_CALLS = 4  # from what a function gives back to what makes it
_FREEZES = re.compile(r"requires_grad_?\b.{0,40}\bFalse|toggle")  # a side, while the other one trains
_OF_OTHERS = ("next", "__next__", "from_numpy")  # what these give was not made by what they are given


class GeneratorTrainedByCritic(SourceCheck):
    """The discriminator's loss is computed on generated data that are not detached, and the generator's
    gradients are not cleared after it; or both steps come behind both backward(); or the optimizer of the one
    holds the weights of the other.

    Why: the generator also gets the gradient that helps the discriminator, the opposite of what it should
    learn.

    Bad:
        fake = generator(z)
        opt_d.zero_grad()
        d_loss = discriminator(fake).mean() - discriminator(real).mean()  # here
        d_loss.backward(retain_graph=True)
        opt_d.step()
        g_loss = -discriminator(fake).mean()
        g_loss.backward()
        opt_g.step()
        opt_g.zero_grad()

    Good:
        fake = generator(z)
        opt_d.zero_grad()
        d_loss = discriminator(fake.detach()).mean() - discriminator(real).mean()
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = -discriminator(fake).mean()
        g_loss.backward()
        opt_g.step()

    Fix: discriminator(fake.detach()) in the discriminator's step; zero_grad() straight before each
    backward(), and each step() straight behind it; Adam(discriminator.parameters()) for the optimizer that
    steps after the discriminator's loss.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/softmax_gan/softmax_gan.py:146; beds R, W, X,
    Y: 2 true, 1 debatable, 7 false.
    """

    code = "GRAD020"
    never = (CLEAR,)
    words = ("backward", "optim")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report generated data in a loss that both sides step on, and optimizers that are crossed."""
        for call, name, held in crossed_optimizers(module):
            yield At(
                call, f"{name} holds the weights of {held}: the other side's loss would train them.", BUG
            )
        for trace in module.traces:
            found = [
                at
                for each in trace.of("backward")
                if not _is_update_of_both(trace, each)
                and all(
                    _is_stepped_without_clear(trace, each, side) for side in ("discriminator", "generator")
                )
                for at in _find_undetached_fakes(module, each)
            ]
            gravest = min((each.severity.rank for each in found), default=0)
            yield from (each for each in found if each.severity.rank == gravest)


def _is_update_of_both(trace: Trace, backward: TraceEvent) -> bool:
    """Tell a term that both sides make small on purpose, as InfoGAN's: both are cleared for it and step on it, beside updates of
    their own."""
    around = backward.path[: next((i + 1 for i, each in enumerate(backward.path) if each.kind == "loop"), 0)]
    updates: list[tuple[TraceEvent | None, set[str | None], set[str | None]]] = [(None, set(), set())]
    cleared: set[str | None] = set()
    for each in trace.within(around, "backward", "step", "zero_grad"):
        side = gan_role_in_source(each.subject)
        if each.kind == "backward":
            updates.append((each, cleared, set()))
            cleared = set()
        elif each.kind == "step":
            updates[-1][2].add(side)
        else:
            cleared.add(side)
    both = {"discriminator", "generator"}
    is_shared = any(
        each is backward and begun >= both and stepped >= both for each, begun, stepped in updates
    )
    own = [next(iter(stepped)) for each, _, stepped in updates if each is not None and len(stepped) == 1]
    return is_shared and both <= {*own}


def _is_stepped_without_clear(trace: Trace, backward: TraceEvent, side: str) -> bool:
    """Tell whether the side's optimizer steps behind a backward with no clear between, perhaps in the next iteration."""
    around = backward.path[: next((i + 1 for i, each in enumerate(backward.path) if each.kind == "loop"), 0)]
    events = trace.within(around, "step", "zero_grad")
    at = trace.order[backward]
    later = sorted(events, key=lambda each: (trace.order[each] < at, trace.order[each]))
    sides = [(each, gan_role_in_source(each.subject)) for each in later]
    first = next((each for each, own in sides if own in (side, None)), None)
    return first is not None and first.kind != "zero_grad" and gan_role_in_source(first.subject) == side


def _find_undetached_fakes(module: SourceModule, backward: TraceEvent) -> Iterator[At]:
    """Report generated data with their graph in such a loss: the discriminator's, where that is given others as well."""
    call, loss = backward.node, backward.receiver
    if loss is None or (isinstance(call, ast.Call) and any(each.arg == "inputs" for each in call.keywords)):
        return
    judged = [
        each
        for each in calls_with_graph(module, loss)
        if _generator_or_discriminator(module, each) == "discriminator" and each.args
    ]
    generated = [each for each in judged if any(_is_generated(module, part) for part in each.args)]
    if not generated:
        return
    name = ast.unparse(generated[0].args[0])
    if len(generated) < len(judged):
        yield At(generated[0], f"{name} is not detached: the generator gets these gradients.", BUG)
    elif not _FREEZES.search(module.text):
        yield At(
            call,
            "The steps of both sides take the gradient of this loss, which is good for one and bad for the other.",
            RISK,
        )


def _is_generated(module: SourceModule, part: ast.expr) -> bool:
    """Tell what the generator made, unless a function with a gradient of its own, which may turn it round, stands between."""
    made = calls_with_graph(module, part)
    turned = any(method_of(each) == "apply" for each in made)
    return _has_generator(module, part, made) and not turned


def _has_generator(module: SourceModule, part: ast.expr, made: Iterable[ast.Call]) -> bool:
    """Tell a generator among the calls that a value is made by; what `next` or an array gives was made elsewhere."""
    others = [each for each in calls_behind(module, part) if last_part(each.func) in _OF_OTHERS]
    apart = {inner for each in others for inner in calls_behind(module, each)}
    return any(_generator_or_discriminator(module, each) == "generator" for each in made if each not in apart)


def _generator_or_discriminator(module: SourceModule, call: ast.Call, depth: int = 0) -> str | None:
    is_other = (module.qualify(call.func) or "").startswith("torch.") or (
        isinstance(call.func, ast.Attribute) and dotted_name(call.func) is None
    )
    owner = (
        call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "forward" else call.func
    )
    if is_self(owner) and (forward := module.classes.method(module.classes.of(owner), "forward")):
        ends = [each for each in module.functions.results(forward) if isinstance(each, ast.Call)]
        sides = {
            _generator_or_discriminator(module, each)
            for each in ends
            if dotted_name(each.func) not in ("self", "self.forward")
        }
        return sides.pop() if len(sides) == 1 else None
    known = [each for each in module.definitions(call.func) if isinstance(each, ast.Lambda)]
    run: Function | None = known[0] if known else module.functions.target(call)
    if run is not None and not isinstance(module.home(run).parents[run], ast.ClassDef):
        return _role_of_results(module, call, run, depth)
    return (
        None if is_other else gan_role_in_source(ast.unparse(call.func))
    )  # torch.Generator().manual_seed(1)


def _role_of_results(module: SourceModule, call: ast.Call, run: Function, depth: int) -> str | None:
    """Return the side that makes what a function gives back; its own name may tell what it yields, or draws."""
    home = module.home(run)
    ends = module.functions.results(run) if depth < _MOST_CALLS else []
    made = [each for end in ends for each in calls_with_graph(home, end)]
    sides = {_generator_or_discriminator(home, each, depth + 1) for each in made} - {None}
    if not sides and any(is_model_call(home, each) for each in made):
        return gan_role_in_source(ast.unparse(call.func))
    return sides.pop() if len(sides) == 1 else None
