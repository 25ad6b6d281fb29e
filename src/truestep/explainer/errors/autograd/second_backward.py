# SPDX-License-Identifier: Apache-2.0
import ast
from collections import deque
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.memory_holders import retained_graphs_facts
from truestep.explainer.run_sentences import made_at_line_phrase, running_models
from truestep.explainer.source import crashed_file_nodes_of_type
from truestep.explainer.values import format_tensor_dtype_and_shape, is_tensor_at_crash


class SecondBackward(Explainer):
    """backward goes through a part of the graph a second time.

    Means: a backward frees what it used. A second one meets that part again: two losses share it, or a state of the last
    step is still attached.

    Raises:
        weights = torch.ones(3, requires_grad=True)
        shared = (weights * weights).sum()
        (2 * shared).backward()
        (3 * shared).backward()

    Works:
        weights = torch.ones(3, requires_grad=True)
        shared = (weights * weights).sum()
        (2 * shared + 3 * shared).backward()

    Fix: call backward once for each loss, and once for losses that share a part: add them; detach a state that goes on to
    the next step (hidden = hidden.detach()); for a GAN give the discriminator fake.detach().
    retain_graph=True hides it, and memory grows.

    Cases:
        otherwise: {kept} Fix: {kept_fix}
        otherwise: `{shared}` ({value}){made}, is in this graph and in that of {of}, whose backward (line {line}) freed it.
            Fix: write {shared}.detach() for the loss that is not to train what made it (a GAN's discriminator), or add the losses
            and call backward once. Where both train it, compute {shared} anew after the first step.
        otherwise: `{state}` in {function} ({place}) is still attached to the graph of the step before.
            Fix: detach it after each step: {detached}.
        otherwise: `{stored}` is still attached to the graph of the step before.
            Fix: detach it where it is stored: self.{name} = value.detach().
    """

    messages = (
        r"Trying to backward through the graph a second time",
        r"Saved intermediate values of the graph are freed",
    )
    checks = ("GRAD011", "GRAD020")
    not_in_a_log = "which value is still attached to the earlier graph"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if kept := retained_graphs_facts(crash):
            return kept
        if shared := value_shared_by_graphs(crash):
            return shared
        for frame, name, value in crash.users_locals():
            if name.lower() in _STATES and _has_grad_fn_in_value(value):
                detached = _detach_statement(name, value)
                return {"state": name, "function": frame.function, "place": frame.place, "detached": detached}
        for owner, model in running_models(crash):
            for path, module in model.named_modules():
                for name, value in vars(module).items():
                    if _has_grad_fn_in_value(value):
                        stored = ".".join(part for part in (owner, path, name) if part)
                        return {"stored": stored, "name": name}
        return {}


def _has_grad_fn_in_value(value: object) -> bool:
    parts = value if type(value) is tuple else (value,)
    return any(is_tensor_at_crash(each) and each.grad_fn is not None for each in parts)


_STATES = {
    "h", "c", "hx", "cx", "hc", "state", "states", "hidden", "hiddens", "memory", "carry", "hidden_state",
    "memories",
}  # fmt: skip


def _detach_statement(name: str, value: object) -> str:
    is_tuple = type(value) is tuple
    return f"{name} = tuple(each.detach() for each in {name})" if is_tuple else f"{name} = {name}.detach()"


_MAX_NODES = 50_000


def value_shared_by_graphs(crash: Crash) -> dict[str, str]:
    """Return the value that a loss shares with one whose backward ran before, as facts of a case; nothing where it can't be seen.

    It is in the failing graph, was made before an earlier backward() of the same function, and is no loss itself.
    """
    failing = _loss_of_failed_backward(crash)
    if failing is None or crash.user is None:
        return {}
    nodes = _inner_nodes(failing.grad_fn)
    earlier = [line for line in _backward_lines(crash) if line < crash.user.line]
    if not earlier:
        return {}
    names = [(name, value) for frame, name, value in crash.users_locals() if frame is crash.user]
    held = [(name, value) for name, value in names if is_tensor_at_crash(value) and value.grad_fn is not None]
    shared = [
        (name, value, line)
        for name, value in held
        if value is not failing and value.dim() and value.grad_fn in nodes
        if (line := crash.made(name)) is not None and line.number < earlier[-1]
    ]
    if not shared:
        return {}
    others = [
        (name, _inner_nodes(each.grad_fn)) for name, each in held if each is not failing and not each.dim()
    ]
    name, value, line = max(shared, key=lambda each: sum(each[1].grad_fn in known for _, known in others))
    loss = next((f"`{other}`" for other, known in others if value.grad_fn in known), "an earlier loss")
    made = made_at_line_phrase(line)
    return {
        "shared": name,
        "value": format_tensor_dtype_and_shape(value),
        "made": made,
        "of": loss,
        "line": str(earlier[-1]),
    }


def _loss_of_failed_backward(crash: Crash) -> Any:
    """Return the loss whose backward failed."""
    for frame in reversed(crash.frames):
        names = frame.locals()
        for value in (names.get("self"), *_first_item(names.get("tensors"))):
            if frame.function == "backward" and is_tensor_at_crash(value) and value.grad_fn is not None:
                return value
    return None


def _first_item(values: Any) -> tuple[Any, ...]:
    return tuple(values[:1]) if type(values) in (tuple, list) else (values,)


def _inner_nodes(root: Any) -> set[Any]:
    """Return the nodes of a graph, but for those of leaves, which graphs share anyway."""
    found, waiting = {root}, deque([root])
    while waiting and len(found) < _MAX_NODES:
        for node, _ in waiting.popleft().next_functions:
            if node is not None and node not in found and node.name() != "torch::autograd::AccumulateGrad":
                found.add(node)
                waiting.append(node)
    return found


def _backward_lines(crash: Crash) -> list[int]:
    """Return the lines of the user's running function that call backward."""
    assert crash.user is not None
    code = crash.user.live.f_code if crash.user.live is not None else None
    # Lines of this function alone: when another one ran can't be told from its text.
    own = {line for *_, line in code.co_lines() if line} if code is not None else set()
    calls = crashed_file_nodes_of_type(crash.user.path, ast.Call)
    named = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "backward")
    return sorted(call.lineno for call in named if call.lineno in own)
