# SPDX-License-Identifier: Apache-2.0
"""Making a learner's optimizers: what the factory gets, what is checked of the result, and which kernel runs it."""

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from traceback import walk_tb
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.argument_errors import is_argument_error
from truestep.core.device_specific import has_fused_kernel, is_cpu_device
from truestep.core.errors import OptionError, did_you_mean
from truestep.core.module_inspection import NORMS
from truestep.core.text_formatting import a_type, plural

OptimizerFactory = Callable[["Parameters"], Optimizer | Sequence[Optimizer]]

# Which kernel steps a group is this machine's choice, and no setting of the training.
KERNEL_OPTIONS = ("fused", "foreach")
_SCHEDULED = ("lr", "momentum", "betas")  # what a schedule of torch's may move


class Parameters:
    """The parameters that an optimizer factory is given: an iterable of tensors that also knows names and modules.

    `torch.optim.AdamW(p, lr=1e-3)` takes all of them; the methods give parameter groups.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], module: nn.Module) -> None:
        self._named = list(named)
        self._owner = _parameter_owners(module)

    def __iter__(self) -> Iterator[nn.Parameter]:
        return iter(parameter for _, parameter in self._named)

    def __len__(self) -> int:
        return len(self._named)

    @property
    def named(self) -> list[tuple[str, nn.Parameter]]:
        """Pairs of name and parameter; `torch.optim` takes these too and keeps the names."""
        return list(self._named)

    def where(self, condition: Callable[[str, nn.Module, nn.Parameter], bool]) -> list[nn.Parameter]:
        """Return the parameters for which `condition(name, module that owns it, parameter)` holds."""
        return [parameter for name, parameter in self._named if condition(name, self._owner[name], parameter)]

    def decayed(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return two groups: `weight_decay` on weights, none on biases, norms, embeddings and other vectors and scalars."""
        weights = self.where(_has_weight_decay)
        return self._make_groups([(weights, {"weight_decay": weight_decay})], {"weight_decay": 0.0})

    def groups(self, options: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a group for each name prefix, and one for the rest: `p.groups({"head.": {"lr": 1e-2}})`."""
        chosen = []
        for prefix, settings in options.items():
            members = [parameter for name, parameter in self._named if name.startswith(prefix)]
            if not members:
                known = [name for name, _ in self._named]
                near = did_you_mean(
                    prefix, {*known, *(f"{name.partition('.')[0]}." for name in known if "." in name)}
                )
                raise OptionError(
                    f"No parameter's name starts with {prefix!r}, so its options would do nothing. {near}Names: "
                    f"{', '.join(known[:12])}{' …' if known[12:] else '.'}"
                )
            chosen.append((members, settings))
        return self._make_groups(chosen, {})

    def _make_groups(
        self, chosen: Sequence[tuple[list[nn.Parameter], dict[str, Any]]], rest: dict[str, Any]
    ) -> list[dict[str, Any]]:
        taken: set[int] = set()
        groups = []
        for members, settings in chosen:
            fresh = [parameter for parameter in members if id(parameter) not in taken]
            taken |= {id(parameter) for parameter in fresh}
            groups.append({"params": fresh, **settings})
        groups.append({"params": [parameter for parameter in self if id(parameter) not in taken], **rest})
        return [group for group in groups if group["params"]]

    @property
    def matrices(self) -> list[nn.Parameter]:
        """The weight matrices of hidden layers (two-dimensional, no embeddings): what Muon is for."""
        return self.where(_is_matrix)

    @property
    def others(self) -> list[nn.Parameter]:
        """Everything that is not in `matrices`."""
        return self.where(lambda *about: not _is_matrix(*about))


def muon_with_adamw(
    parameters: Parameters, *, lr: float = 0.02, adamw_lr: float = 3e-4, weight_decay: float = 0.0
) -> list[Optimizer]:
    """Return Muon for the matrices and AdamW for the rest (Jordan et al., 2024), to be used as a learner's optimizer.

    Output heads are matrices too; practice gives them to AdamW: use `parameters.where` to choose by name.
    """
    if not isinstance(parameters, Parameters):
        raise OptionError(
            f"ts.muon_with_adamw was given {a_type(parameters)}. It takes what a learner gives its factory, which knows "
            "the layers: run.learner(net, ts.muon_with_adamw), or lambda p: ts.muon_with_adamw(p, lr=0.02)."
        )
    optimizers: list[Optimizer] = []
    if parameters.matrices:
        optimizers.append(torch.optim.Muon(parameters.matrices, lr=lr, weight_decay=weight_decay))
    if parameters.others:
        optimizers.append(torch.optim.AdamW(parameters.others, lr=adamw_lr, weight_decay=weight_decay))
    return optimizers


class ReadOnlyOptimizers(list[Optimizer]):
    """The optimizers of a learner: to be read; another one in their place would step nothing."""

    def _refuse_change(self, *_: Any, **__: Any) -> NoReturn:
        raise OptionError(
            "net.optimizers can be read, not changed: an optimizer that is put there would never step. The learner's is made by "
            "the function that run.learner is given; what it has can be set: net.optimizers[0].param_groups[0]['lr'] = 0.01."
        )

    __setitem__ = __delitem__ = __iadd__ = append = extend = insert = pop = remove = clear = _refuse_change


def _parameter_owners(module: nn.Module) -> dict[str, nn.Module]:
    return {
        f"{prefix}.{name}" if prefix else name: part
        for prefix, part in module.named_modules(remove_duplicate=False)
        for name in part._parameters
    }


def _has_weight_decay(_: str, module: nn.Module, parameter: nn.Parameter) -> bool:
    return parameter.ndim >= 2 and not isinstance(module, (*NORMS, nn.Embedding, nn.EmbeddingBag))


def _is_matrix(_: str, module: nn.Module, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and not isinstance(module, nn.Embedding | nn.EmbeddingBag)


def sparse_gradient_embeddings(module: nn.Module) -> list[nn.Module]:
    """Return the embeddings of `module` that make sparse gradients."""
    return [
        part for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse
    ]


def optimizer_parameters(*optimizers: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that optimizers hold, group by group."""
    return [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]


def optimizer_needs_closure(optimizers: Sequence[Optimizer]) -> bool:
    """Whether one of them evaluates the loss itself while it steps."""
    return any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in optimizers)


_TEXT_FOR_NUMBER = (
    "truestep: the optimizer's factory was called, and an option that it gives is text where a number is asked for. YAML reads "
    "1e-3 as text, and 1.0e-3 as a number; what comes from a command line or the environment is text, too. Write lr=float(lr)."
)


def _early_optimizer_error(made: Optimizer) -> OptionError:
    """Return what to write for an optimizer that is there; Accelerate's and others hold the one that was made in `optimizer`."""
    while isinstance(inside := getattr(made, "optimizer", None), Optimizer) and inside is not made:
        made = inside
    kind = type(made)
    name = (
        f"torch.optim.{kind.__name__}" if getattr(torch.optim, kind.__name__, None) is kind else kind.__name__
    )
    return OptionError(
        "A learner makes its optimizer itself, after the module is on its device and in its precision. Pass a function: "
        f"lambda p: {name}(p, lr={made.param_groups[0].get('lr')})."
    )


def make_optimizers(
    factory: OptimizerFactory, parameters: Parameters, name: str, owners: Callable[[], Mapping[int, str]]
) -> list[Optimizer]:
    """Call the factory of the learner `name`, and check that what it returns trains these parameters and no others.

    `owners` gives the names of the other learners by the ids of their parameters.
    """
    if isinstance(factory, Optimizer):
        raise _early_optimizer_error(factory)
    if not callable(factory) or isinstance(factory, nn.Module):
        shown = type(factory).__name__ + "(...)" if isinstance(factory, nn.Module) else repr(factory)
        raise OptionError(
            f"optimizer={shown} is no function that makes an optimizer. Write one, with its options: "
            "lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )
    try:
        made = factory(parameters)
    except (TypeError, AttributeError) as error:
        if said := _wrong_factory_message(error):
            raise OptionError(said) from error
        if "'str'" in str(error):
            error.add_note(_TEXT_FOR_NUMBER)
        raise
    except OptionError:
        raise  # of p.groups, which has said all
    except ValueError as error:
        raise OptionError(_refused_value_message(error, name)) from error
    optimizers = (
        ReadOnlyOptimizers(made) if isinstance(made, Sequence | Iterator) else ReadOnlyOptimizers([made])
    )
    _check_optimizer_types(optimizers)
    _check_optimizer_parameters(optimizers, parameters, name, owners)
    return optimizers


def _refused_value_message(error: ValueError, name: str) -> str:
    """Say why an optimizer refused what its factory gave it, and what it takes."""
    said = str(error)
    called = f"The optimizer of {name!r} could not be made: {said}."
    if "appear in more than one parameter group" in said:
        return (
            f"{called} Such a one would be stepped twice. Let the groups share none, as those of p.groups do: "
            'lambda p: torch.optim.AdamW(p.groups({"head.": {"lr": 1e-2}}), lr=1e-3).'
        )
    if found := re.match(r"Invalid (learning rate|lr|weight_decay|momentum|eps|epsilon|beta)\b", said):
        why, write = _RANGES.get(found[1], _RANGES["beta"])
        return f"{called} {why}, so write {write}."
    return f"{called} Change what the function gives it: lambda p: torch.optim.AdamW(p, lr=1e-3)."


_RATE = "With a rate below 0 each step goes up the loss", "lr=1e-3 or another positive number"
_RANGES = {
    "learning rate": _RATE,
    "lr": _RATE,
    "weight_decay": ("Below 0 it lets the weights grow", "weight_decay=0.01, or 0 for none"),
    "momentum": ("Below 0 each step takes the last one back", "momentum=0.9, or 0 for none"),
    "eps": ("It keeps a division from zero", "eps=1e-8"),
    "epsilon": ("It keeps a division from zero", "eps=1e-8"),
    "beta": ("An average forgets nothing at 1 and is none below 0", "betas=(0.9, 0.999)"),
}


def _wrong_factory_message(error: TypeError | AttributeError) -> str | None:
    """Say what to write where the factory's own call is what failed, not what it computes."""
    if isinstance(error, AttributeError):
        if not isinstance(error.obj, Parameters):
            return None
        return (
            f"The optimizer factory asked for .{error.name} of what it is given, and that is the learner's parameters themselves, "
            "no module. Write lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )
    if is_argument_error(error):
        return (
            f"The optimizer factory was called with the learner's parameters, and python says: {error}. Let it take them: "
            "lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    made = next((f for f in frames if f.f_code.co_name == "__init__" and "params" in f.f_locals), None)
    given = None if made is None else _not_parameters_message(made.f_locals["params"])
    if given is None or made is None:
        return None
    name = type(made.f_locals["self"]).__name__
    return (
        f"The optimizer factory gave {name} {given} in the place of parameters. Give it those that the function is called with: "
        f"lambda p: torch.optim.{name}(p, lr=1e-3)."
    )


def _not_parameters_message(given: Any) -> str | None:
    """Return what an optimizer was given in the place of parameters, None where nothing was."""
    if isinstance(given, Tensor | Parameters):
        return None
    if isinstance(given, nn.Module):
        return f"the module {type(given).__name__} itself"
    if callable(given):
        return f"{getattr(given, '__qualname__', type(given).__name__)} itself, which was not called,"
    if isinstance(given, Mapping):
        return _not_parameters_message(given["params"]) if "params" in given else "a dict"
    if isinstance(given, list | tuple):
        return next((found for each in given if (found := _not_parameters_message(each))), None)
    return None


def _check_optimizer_types(optimizers: Sequence[object]) -> None:
    for each in optimizers:
        if isinstance(each, Optimizer):
            _check_optimizer_constructor(each)
            continue
        what = f"The optimizer factory returned {type(each).__name__}"
        if isinstance(each, Mapping | Sequence | LRScheduler):
            raise OptionError(
                f"{what} where an optimizer is asked for; with schedules, as other libraries take them, it does not go together. "
                "Return the optimizer alone (or a list of them), and say the schedule beside it: run.learner(..., "
                "schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 1000)), in ts.per_epoch(...) where it counts epochs."
            )
        raise OptionError(
            f"{what}, so nothing could be trained; it must return a torch optimizer or a list of them: "
            "lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )


def _check_optimizer_constructor(optimizer: Optimizer) -> None:
    if not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        name = type(optimizer).__name__
        raise OptionError(
            f"{name} is no whole torch optimizer: its __init__ does not call super().__init__(parameters, defaults), so it has "
            f"none of the hooks and states that a run saves. Return the optimizer within it alone, or let {name}.__init__ call it."
        )


def _check_optimizer_parameters(
    optimizers: Sequence[Optimizer],
    parameters: Parameters,
    name: str,
    owners: Callable[[], Mapping[int, str]],
) -> None:
    mine = {id(parameter) for parameter in parameters}
    held = optimizer_parameters(*optimizers)
    foreign = [each for each in held if id(each) not in mine]
    if foreign:
        known = owners()
        others = sorted({known[id(each)] for each in foreign if id(each) in known})
        whose = f", but of {' and '.join(map(repr, others))}" if others else ""
        shapes = [tuple(each.shape) for each in foreign[:4]]
        raise OptionError(
            f"The optimizer{f' of {name!r}' if name else ''} holds {plural(len(foreign), 'parameter')} not of the learner{whose} "
            f"(shapes {shapes}), so it would train something else and leave the module as it is. Use the parameters that the "
            "factory is given: lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )
    if len({id(p) for p in held}) < len(held):
        raise OptionError(
            "A parameter is in two of the learner's optimizers or groups; it would be stepped twice. Give it to one."
        )
    ids = {id(p) for p in held}
    missing = [name for name, p in parameters.named if p.requires_grad and id(p) not in ids]
    if missing:
        raise OptionError(
            f"The optimizer leaves out {len(missing)} trainable parameters ({', '.join(missing[:6])}), which would never "
            "change. Give it all of them, or say so with requires_grad_(False)."
        )


def choose_fused_optimizer(
    optimizer: Optimizer, device: torch.device, *, sparse: bool = False, divided: bool = False
) -> str | None:
    """Switch an optimizer to its fused kernel unless the user chose; return the reason, None where nothing was chosen."""
    name = type(optimizer).__name__
    if "fused" not in inspect.signature(type(optimizer).__init__).parameters:
        return f"{name} has no fused kernel in torch {torch.__version__}."
    groups = optimizer.param_groups
    if any(group.get(name) is not None for group in groups for name in KERNEL_OPTIONS):
        return None
    if has_faulty_fused_kernel(optimizer):
        return f"{name}'s fused kernel computes wrong numbers from half-precision weights on a CPU in torch {torch.__version__}."
    if sparse:
        return f"{name}'s fused kernel takes no sparse gradients, which an embedding of this learner has."
    if divided and not isinstance(optimizer, torch.optim.Adam):
        return f"torch has no fused kernel of {name} for weights that are divided among processes."
    is_real = all(each.is_floating_point() for each in optimizer_parameters(optimizer))
    if (
        not has_fused_kernel(device, name)
        or not is_real
        or any(group.get("differentiable") for group in groups)
    ):
        return f"{name}'s fused kernel does not run here ({device.type}, or complex or differentiable parameters)."
    if is_cpu_device(device) and name == "SGD" and not any(g["momentum"] for g in groups):
        return "SGD without momentum is one addition; its fused kernel is no faster on a CPU (benchmarks/engine/fused.py)."
    for group in groups:
        group["fused"] = True
    # for groups that are added later
    optimizer.defaults["fused"] = True
    # as torch's constructors set it for fused=True: whoever scales losses asks for it
    optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
    move_step_counts(optimizer)
    return f"{name} steps all parameters in one fused kernel, the fastest of torch's on a CPU (benchmarks/engine/fused.py)."


def move_step_counts(optimizer: Optimizer) -> None:
    """Have the numbers of steps where the kernel of their group reads them: a fused one's beside the parameters, else on the host.

    torch's Adagrad makes them in its constructor, before a kernel is chosen; a checkpoint may come from a machine with another one.
    """
    for group in optimizer.param_groups:
        if "fused" not in group:  # not torch's own
            continue
        beside, dtype = group["fused"] or group.get("capturable"), torch.float32 if group["fused"] else None
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if isinstance(count := state.get("step"), Tensor):
                state["step"] = count.to(parameter.device if beside else "cpu", dtype)


def has_faulty_fused_kernel(optimizer: Optimizer) -> bool:
    """Whether torch's fused kernel for this optimizer is wrong here: SGD on a CPU reads and writes only a half of each vector
    of float16 or bfloat16 (torch 2.13; tests/engine/test_optimizers.py says when that is over)."""
    return isinstance(optimizer, torch.optim.SGD) and any(
        each.is_cpu and each.dtype in (torch.float16, torch.bfloat16)
        for each in optimizer_parameters(optimizer)
    )


def prepare_optimizer_momentum(optimizer: Optimizer) -> None:
    """Make SGD's momentum buffers before the first step.

    torch's fused SGD leaves a buffer uninitialised when its very first step is skipped after an overflow. A buffer of
    zeros gives the same first step (0·momentum + gradient), except with `dampening`, which needs torch's own first step.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        if group["momentum"] and group["dampening"]:
            group["fused"] = False
            # the unfused kernel does not read the flag by which a step is left out
            optimizer._step_supports_amp_scaling = False
        elif group["momentum"]:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def _copy_option_value(value: Any) -> Any:
    """Return an option as the code gave it: a list or dict in a group may be a cache that steps write into."""
    return copy.deepcopy(value) if isinstance(value, list | dict | set) else value


def given_optimizer_options(optimizers: Sequence[Optimizer]) -> list[list[dict[str, Any]]]:
    """Return the options of each group of each optimizer as the code gives them, before anything moves them."""
    return [[_given_options(group) for group in optimizer.param_groups] for optimizer in optimizers]


def _given_options(group: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a group that its schedule leaves alone; a rate that is a tensor, which one writes into, as a number."""
    left_out = ("params", *KERNEL_OPTIONS, *(_SCHEDULED if "initial_lr" in group else ()))
    return {
        name: value.item() if isinstance(value, Tensor) and value.ndim == 0 else _copy_option_value(value)
        for name, value in group.items()
        if name not in left_out
    }
