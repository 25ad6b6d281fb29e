# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import (
    describe_running_layer,
    layer_input,
    name_of_parameter_in_models,
    where_value_was_made,
)
from truestep.explainer.values import ValueOnLine, is_layer_at_crash, is_tensor_at_crash


class TwoDevices(Explainer):
    """Tensors on two devices meet in one operation.

    Means: an operation computes where its tensors are, so that all of them must be on one device.

    Raises:
        model = nn.Linear(2, 2, device="meta")
        model(torch.zeros(4, 2))

    Works:
        model = nn.Linear(2, 2, device="cpu")
        model(torch.zeros(4, 2))

    Fix: move the batch with x = x.to(device) (the call returns the moved tensor), the model with model.to(device), and
    make new tensors where the others are: torch.zeros(..., device=x.device). Constants of a model are buffers.

    Cases:
        otherwise: {places}.
            Fix: write self.register_buffer("{buffer}", ...) in __init__, not self.{buffer} = ...: then .to() moves it.
        `empty=weights`: {places}.
            Fix: tensors on meta have no values: make the model outside of torch.device("meta"), or
            model.to_empty(device=device) and then load_state_dict(state).
        otherwise: {places}.
            Fix: tensors on meta have no values: make {empty_tensor} on the device where the others are.
        otherwise: {places}. Fix: write {weights_of}.to({source}) once, where the model is made.
        `stray=its input;`: {places}.
            Fix: move the batch before this line: x = x.to({source}), and use what it returns.
        otherwise: {places}.
            Fix: write {stray} = {stray}.to({source}) before this line: .to() returns the moved tensor, and changes none.
        `on_gpu=first`: one is on {first}, the other on {second}.
            Fix: the input is on the GPU and the weights are not: write model.to(device); layers in a plain list need
            nn.ModuleList.
        `on_gpu=second`: one is on {first}, the other on {second}.
            Fix: the weights are on the GPU and the input is not: write x = x.to(device) for every batch.
        otherwise: one is on {first}, the other on {second}.
    """

    messages = (
        r"on the same device, but (?:found at least two devices, (?P<first>[\w:]+) and (?P<second>[\w:]+)|.*)",
        r"Tensor on device (?P<first>[\w:]+) is not on the expected device (?P<second>[\w:]+)",
        (
            r"Input type \((?:torch\.)?(?P<first>cuda\.\w+|\w*Tensor|mps:\w+)\) and weight type "
            r"\((?:torch\.)?(?P<second>cuda\.\w+|\w*Tensor|mps:\w+)\)"
            r" should be the same"
        ),
        r"Expected object of (?:backend|device type) (?P<second>\w+) but got (?:backend|device type) (?P<first>\w+) for",
        (
            r"Input and (?:parameter|hidden) tensors are not at the same device, found (?:input|parameter) tensor at "
            r"(?P<first>[\w:]+) and "
            r"(?:hidden|parameter|input) tensor at (?P<second>[\w:]+)"
        ),
        r"indices should be either on (?P<first>\w+) or on the same device as the indexed tensor(?: \((?P<second>\w+)\))?",
        r"its parameters and buffers on device (?P<first>[\w:]+) .*one of them on device: (?P<second>[\w:]+)",
        r"Tensor for (?:argument #\d+ )?'\w+' is on (?P<first>\w+), but expected (?:it|them) to be on (?P<second>\w+)",
        r"Input, output and indices must be on the current device",
        r"Expected tensor to have (?P<first>\w+) Backend, but got tensor with (?P<second>\w+) Backend",
    )
    checks = ("DEV005", "PARAM001", "PARAM002")
    not_in_a_log = "which tensor is on which device, and where it was made"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        rows = (*_devices_of_values_on_line(crash), *_devices_of_layer_values(crash))
        places = [(name, str(device), origin) for name, device, origin in rows if device]
        if len({device for _, device, _ in places}) > 1:
            # Of several on one device the first is shown: what the user's line names stands before what its layer holds.
            shown = {
                at: f"{name} {_is_or_are(name)} on {at}{origin}" for name, at, origin in reversed(places)
            }
            return {"places": "; ".join(reversed(shown.values()))} | _facts_of_tensor_to_move(crash, places)
        on_gpu = [
            name for name in ("first", "second") if str(match.groupdict().get(name)).startswith("cuda.")
        ]
        return {"on_gpu": on_gpu[0]} if len(on_gpu) == 1 else {}


def _devices_of_values_on_line(crash: Crash) -> list[tuple[str, object, str]]:
    rows: list[tuple[str, object, str]] = []
    for each in crash.values:
        if is_tensor_at_crash(each.value):
            rows.append((each.name, each.value.device, where_value_was_made(crash, each)))
        elif is_layer_at_crash(each.value):
            parameters = [*each.value.parameters(), *each.value.buffers()]
            devices = dict.fromkeys(parameter.device for parameter in parameters)
            rows += [
                (f"{each.name}'s weights", device, where_value_was_made(crash, each)) for device in devices
            ]
    return rows


def _devices_of_layer_values(crash: Crash) -> list[tuple[str, object, str]]:
    """Return what a layer of torch's was given and what it holds, where the user's line names neither."""
    layer, tensor = crash.layer, layer_input(crash)
    if layer is None or tensor is None:
        return []
    weights = [
        (f"{describe_running_layer(crash, made=False)}'s weights", each.device, "")
        for each in layer.module.parameters(recurse=False)
    ]
    return [(_INPUT, tensor.device, ""), *weights[:1]]


_INPUT, _WEIGHTS = "its input", "'s weights"


def _is_or_are(name: str) -> str:
    return "are" if name.endswith("weights") else "is"


def _tensor_to_move_and_device(places: list[tuple[str, str, str]]) -> tuple[str, str]:
    """Return what should move: weights that stayed on the CPU, else what is not where the weights are."""
    weights = next(((name, device) for name, device, _ in places if name.endswith(_WEIGHTS)), None)
    tensors = [(name, device) for name, device, _ in places if not name.endswith(_WEIGHTS)]
    if weights is None:
        return next((each for each in tensors if each[1] == "cpu"), tensors[0])
    others = [each for each in tensors if each[1] != weights[1]]
    if (weights[1] == "cpu" and all(device != "meta" for _, device in others)) or not others:
        return weights
    return others[0]


def _expression_for_device(places: list[tuple[str, str, str]], device: str) -> str:
    plain = [
        name
        for name, each, _ in places
        if each == device and name.replace(".", "").replace("_", "").isalnum()
    ]
    return f"{plain[0]}.device" if plain and not plain[0].startswith("self.") else "device"


def _is_unregistered_tensor(crash: Crash, name: str) -> bool:
    found = next((each for each in crash.values if each.name == name), ValueOnLine(name, None))
    return is_tensor_at_crash(found.value) and name_of_parameter_in_models(crash, found.value) is None


def _facts_of_tensor_to_move(crash: Crash, places: list[tuple[str, str, str]]) -> dict[str, str]:
    """Return what should move, and where to."""
    name, device = _tensor_to_move_and_device(places)
    if name.startswith("self.") and _is_unregistered_tensor(crash, name):
        return {"buffer": name.removeprefix("self.")}
    empty = next((each for each, where, _ in places if where == "meta"), None)
    if empty is not None:  # without values, so that .to() can't move it
        return {"empty": "weights"} if empty.endswith(_WEIGHTS) else {"empty_tensor": empty}
    source = _expression_for_device(places, next(each for _, each, _ in places if each != device))
    is_layer = name.endswith(_WEIGHTS)
    return {"source": source, "weights_of" if is_layer else "stray": name.removesuffix(_WEIGHTS)}
