# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.evidence import running_models
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.graphs import value_shared_by_graphs
from truestep.explainer.kept import kept_graphs
from truestep.explainer.values import is_tensor_at_crash


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
        otherwise: {kept}
            Fix: {kept_fix}
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
        if kept := kept_graphs(crash):
            return kept
        if shared := value_shared_by_graphs(crash):
            return shared
        for frame, name, value in crash.users_locals():
            if name.lower() in _STATES and _is_attached(value):
                detached = _detached(name, value)
                return {"state": name, "function": frame.function, "place": frame.place, "detached": detached}
        for owner, model in running_models(crash):
            for path, module in model.named_modules():
                for name, value in vars(module).items():
                    if _is_attached(value):
                        stored = ".".join(part for part in (owner, path, name) if part)
                        return {"stored": stored, "name": name}
        return {}


def _is_attached(value: object) -> bool:
    parts = value if type(value) is tuple else (value,)
    return any(is_tensor_at_crash(each) and each.grad_fn is not None for each in parts)


_STATES = {
    "h", "c", "hx", "cx", "hc", "state", "states", "hidden", "hiddens", "memory", "carry", "hidden_state",
    "memories",
}  # fmt: skip


def _detached(name: str, value: object) -> str:
    return (
        f"{name} = tuple(each.detach() for each in {name})"
        if type(value) is tuple
        else f"{name} = {name}.detach()"
    )
