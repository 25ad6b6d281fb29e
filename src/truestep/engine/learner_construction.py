# SPDX-License-Identifier: Apache-2.0
"""Making a learner's parts: the module is brought to its device and type first, its optimizers are made then."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from truestep.core.buffers import MovingBufferSnapshot, spectral_norm_buffers
from truestep.core.device_specific import is_async_device
from truestep.core.errors import OptionError
from truestep.engine.clipping import clip_from_option
from truestep.engine.deferred_flags import DelayedUpdateReports
from truestep.engine.moving_averages import LearnerAverage
from truestep.engine.nonpersistent_buffers import TransientLearnerBuffers
from truestep.engine.object_description import describe_value
from truestep.engine.optimizers import (
    OptimizerFactory,
    Parameters,
    choose_fused_optimizer,
    make_optimizers,
    optimizer_needs_closure,
    prepare_optimizer_momentum,
)
from truestep.engine.option_conflicts import LearnerCombination, check_learner_combination
from truestep.engine.options import LearnerOptions, Modules
from truestep.engine.parts import LearnerParts
from truestep.engine.policy import GradientPolicy
from truestep.engine.precision import Precision, precision_named
from truestep.engine.precision.loss_scale import LossScale, Scaler
from truestep.engine.precision.weight_casting import (
    cast_weights,
    named_parameters_for_optimizer,
    precision_of_weights,
    restore_weights_on_error,
)
from truestep.engine.schedules.stepping import LearnerSchedules
from truestep.engine.shared_context import LearnerContext
from truestep.engine.shared_parameters import check_shared_parameters
from truestep.engine.weights import LearnerWeights


def make_learner_parts(
    modules: Modules, factory: OptimizerFactory, options: LearnerOptions, context: LearnerContext
) -> LearnerParts:
    """Make the parts of a learner and register them by name; a module that can't be trained so is left as it was."""
    module = _combine_modules(modules, context)
    precision = precision_named(options.precision or precision_of_weights(module))
    clip = clip_from_option(options.clip)
    with restore_weights_on_error(module):
        _move_to_device(module, precision, options.name, context)
        named = list(named_parameters_for_optimizer(module, precision))
        weights = LearnerWeights(module, [parameter for _, parameter in named], options.buffers)
        optimizers = make_optimizers(factory, Parameters(named, module), options.name, _owner_lookup(context))
        check_learner_combination(LearnerCombination(options, precision, clip, weights, optimizers))
        scaler = Scaler(LossScale.of(options.loss_scale), context.device) if precision.loss_scaling else None
        _choose_optimizer_kernels(optimizers, weights, options.name, context, scales=precision.loss_scaling)
        policy = GradientPolicy.of(context.nonfinite, clip, scaler, weights.parameters)
        buffers = MovingBufferSnapshot(module, [other.buffers for other in context.learners.values()])
    parts = LearnerParts(
        context=context,
        options=options,
        module=module,
        precision=precision,
        weights=weights,
        optimizers=optimizers,
        policy=policy,
        schedules=LearnerSchedules(options.schedule, optimizers, options.name),
        average=LearnerAverage(weights.names, weights.stepped, module, options.ema) if options.ema else None,
        buffers=buffers,
        transient=TransientLearnerBuffers(module),
        spectral_places=[place for place in spectral_norm_buffers(module) if buffers.holds(place)],
        delayed=_make_delayed_reports(options.name, optimizers, policy, context),
    )
    _note_given_options(parts)
    return _register_learner(parts)


def _owner_lookup(context: LearnerContext) -> Callable[[], dict[int, str]]:
    """Return what gives the names of the learners there are, by the ids of what their optimizers step: for an error alone."""
    return lambda: {
        id(each): other.name for other in context.learners.values() for each in other.weights.stepped
    }


def _note_given_options(parts: LearnerParts) -> None:
    """Put among the choices all that was given to this learner and changes its numbers, classes of the user's own too."""
    context = parts.context
    given = {
        "model": f"{type(parts.module).__qualname__}, {sum(each.numel() for each in parts.weights.parameters):,} parameters",
        "optimizer": _optimizers_text(parts),
        "schedule": ", ".join(parts.schedules.names),
        **parts.as_given,
    }
    of_the_run = {
        "precision": next((each.value for each in context.choices if each.name == "precision"), None)
    }
    for name, value in given.items():
        if value not in (0, "", "None", of_the_run.get(name)):
            reason = parts.precision.meaning if name == "precision" else "given to run.learner"
            context.choose(f"{name} of {parts.name}", value, reason)


def _optimizers_text(parts: LearnerParts) -> str:
    """Return each optimizer with the options of its first group, and what its other groups have otherwise."""
    texts = []
    for optimizer, (first, *others) in zip(parts.optimizers, parts.given_options, strict=True):
        listed = [f"{_option_name(name)}={describe_value(value)}" for name, value in first.items()]
        for number, group in enumerate(others, 1):
            changed = [
                f"{_option_name(name)}={describe_value(value)}"
                for name, value in group.items()
                if value != first.get(name)
            ]
            listed += [f"group {number}: {' '.join(changed)}"] if changed else []
        texts.append(f"{type(optimizer).__qualname__}({', '.join(listed)})")
    return "; ".join(texts)


def _option_name(name: str) -> str:
    return name.removeprefix("initial_")


def _move_to_device(module: nn.Module, precision: Precision, name: str, context: LearnerContext) -> None:
    if not any(True for _ in module.parameters()):
        raise OptionError(
            f"{type(module).__name__} has no parameters, so there is nothing to train. Layers in a plain list or dict "
            "are not registered: use nn.ModuleList, nn.ModuleDict, or assign them as attributes."
        )
    _refuse_lazy_parameters(module)
    _refuse_tensors_without_use(module)
    check_shared_parameters(module, name, precision, context.learners.values())
    module.to(context.device)
    cast_weights(module, precision)
    context.strategy.adopt(module, precision, lambda: context.is_busy)


def _choose_optimizer_kernels(
    optimizers: list[Optimizer], weights: LearnerWeights, name: str, context: LearnerContext, *, scales: bool
) -> None:
    for index, optimizer in enumerate(optimizers):
        if reason := choose_fused_optimizer(
            optimizer, context.device, sparse=weights.has_sparse, divided=weights.are_divided
        ):
            fused = bool(optimizer.defaults.get("fused"))
            label = f"fused of {name}" + (f"[{index}]" if len(optimizers) > 1 else "")
            context.choose(label, fused, reason)
        # Where the device decides, any first step may be left out: no weight in the batch, a loss that is not finite.
        if scales or is_async_device(context.device):
            prepare_optimizer_momentum(optimizer)


def _make_delayed_reports(
    name: str, optimizers: list[Optimizer], policy: GradientPolicy, context: LearnerContext
) -> DelayedUpdateReports | None:
    """Return some where the device runs ahead of the host and all optimizers take a flag; None where flags are at hand."""
    if not is_async_device(context.device) or optimizer_needs_closure(optimizers):
        return None
    slow = [type(o).__name__ for o in optimizers if not getattr(o, "_step_supports_amp_scaling", False)]
    if slow and policy.may_skip:
        context.choose(
            f"flags of {name}",
            "one synchronisation an update",
            f"{', '.join(slow)} can't leave a step out on the device, so the host waits to know whether to take it. "
            'A fused one (Adam, AdamW, SGD; from torch 2.13 Adagrad) avoids it, and so does nonfinite="keep" without float16.',
        )
    return None if slow else DelayedUpdateReports()


def _register_learner(parts: LearnerParts) -> LearnerParts:
    learners = parts.context.learners
    if parts.name in learners:
        raise OptionError(
            f"There is a learner called {parts.name!r} already; give this one another name=, so that its metrics and part of "
            "a checkpoint can be told apart."
        )
    learners[parts.name] = parts
    return parts


def _combine_modules(modules: Modules, context: LearnerContext) -> nn.Module:
    if isinstance(modules, nn.Module):
        return _unwrap_data_parallel(modules, context)
    if (
        isinstance(modules, Mapping)
        and modules
        and all(isinstance(each, nn.Module) for each in modules.values())
    ):
        return nn.ModuleDict(
            {name: _unwrap_data_parallel(module, context) for name, module in modules.items()}
        )
    if isinstance(modules, Sequence) and all(isinstance(module, nn.Module) for module in modules):
        return nn.ModuleList([_unwrap_data_parallel(module, context) for module in modules])
    raise OptionError(
        f"A learner trains an nn.Module, a dict of them or a list of them; got {_describe_modules(modules)}. "
        "It comes first, and the function that makes its optimizer after it: "
        "run.learner(net, lambda p: torch.optim.AdamW(p, lr=1e-3))."
    )


def _unwrap_data_parallel(module: nn.Module, context: LearnerContext) -> nn.Module:
    """Return what torch's data parallel wrappers hold: gradients are summed here, and would be so twice."""
    if hasattr(module, "_orig_mod"):
        context.choose(
            f"compile of {type(module._orig_mod).__name__}",
            "the module alone",
            "it was given as torch.compile(module), so the doctor does not watch it; run.learner(module, optimizer, compile=True) "
            "compiles the whole loss, and checkpoints keep the module's own names",
        )
    if not isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return module
    inner: nn.Module = module.module
    context.choose(
        f"wrapper of {type(inner).__name__}",
        "left out",
        f"{type(module).__name__} is not needed: the engine sums the gradients of the bare module itself",
    )
    return inner


def _refuse_lazy_parameters(module: nn.Module) -> None:
    lazy = [name for name, each in module.named_parameters() if is_lazy(each)]
    if lazy:
        raise OptionError(
            f"{len(lazy)} parameters have no shape yet ({', '.join(lazy[:4])}): lazy layers learn it from their first input, and "
            "an optimizer, an average or a checkpoint can't be made before. Call the module once on an example, under "
            "torch.no_grad(), and give it to the learner then."
        )


def _refuse_tensors_without_use(module: nn.Module) -> None:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    if meta := [name for name, tensor in tensors if tensor.is_meta]:
        raise OptionError(
            f"{len(meta)} tensors of {type(module).__name__} ({', '.join(meta[:4])}) are on the meta device and hold no numbers, "
            "so there is nothing to begin training with. Make the module outside of torch.device('meta'), or give it memory and "
            "weights first: module.to_empty(device='cpu'), then ts.load_weights(module, path)."
        )
    if made := [name for name, tensor in tensors if tensor.is_inference()]:
        raise OptionError(
            f"{len(made)} tensors of {type(module).__name__} ({', '.join(made[:4])}) were made under torch.inference_mode(), and "
            "torch lets nothing be trained with them. Make the module outside of it, or copy it there: copy.deepcopy(module)."
        )


def _describe_modules(modules: Any) -> str:
    if isinstance(modules, type):
        return f"the class {modules.__name__} itself: write {modules.__name__}(...)"
    if isinstance(modules, Mapping) and any(isinstance(each, Tensor) for each in modules.values()):
        return "a dict of tensors, as state_dict() gives: make the module, call its load_state_dict(), and give the module"
    if isinstance(modules, FunctionType | MethodType | partial):
        return "a function, which is not called here: give what it returns, net = make_net()"
    name = type(modules).__name__
    return f"a {name}" + (", made already: give its module to one learner alone" if name == "Learner" else "")
