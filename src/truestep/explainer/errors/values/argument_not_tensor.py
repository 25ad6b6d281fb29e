# SPDX-License-Identifier: Apache-2.0
from itertools import islice
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import describe_crash_layer


class ArgumentNotTensor(Explainer):
    """A layer or function gets a tuple, a list, an array or a string where it needs a tensor.

    Means: the step before gave something else than one tensor; LSTM and GRU give (output, state), attention (output, weights).

    Raises:
        net = nn.Sequential(nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1))
        net(torch.zeros(2, 5, 3))

    Works:
        rnn, head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1)
        outputs, state = rnn(torch.zeros(2, 5, 3))
        head(outputs[:, -1])

    Fix: unpack what gives several results (outputs, state = lstm(x)); make tensors of arrays and lists (torch.from_numpy,
    torch.tensor, torch.stack); take the field of a batch or an output that is a dict.

    Cases:
        `kind=tuple;`: {before} gives several results, and nn.Sequential passes them on as one tuple.
            Fix: call it outside of nn.Sequential and unpack it, or put a layer after it whose forward returns its input's
            [0].
        `holds=texts;`: {name} a {kind} of texts.
            Fix: make numbers of them before the loop, or where batches are made: tokenizer(texts, padding=True,
            return_tensors="pt") in collate.
        `kind=tuple;`: {name} of type {kind}. Fix: unpack it where it is made: outputs, state = layer(x).
        `kind=list;`: {name} of type {kind}.
            Fix: make one tensor: torch.stack(list) for tensors of one size, torch.tensor(list) for numbers.
        `.ndarray;` or `kind=ndarray;`: {name} of type {kind}.
            Fix: write torch.from_numpy(array), with .float() for inputs of layers.
        `kind=str;`: {name} of type {kind}.
            Fix: look at what the loop gives: a dict gives its keys; texts are to be made into numbers first.
        `kind=NoneType;`: {name} of type {kind}.
            Fix: look for a function without return, or an argument that was left out.
        `kind=dict;`: {name} of type {kind}. Fix: take the field that is meant: batch[...] or output[...].
        `kind=int;` or `kind=float;`: {name} of type {kind}. Fix: write torch.tensor(value).
        `.Image;` or `kind=Image;`: {name} of type {kind}.
            Fix: turn the image into a tensor in the data set's transform (transforms.ToTensor()).
        otherwise: {name} of type {kind}.
    """

    types = ("TypeError",)
    messages = (
        r"argument '(?P<argument>\w+)' (?:\(position \d+\) )?must be (?:tuple of )?Tensors?, not (?P<kind>[\w.]+)",
        r"expected Tensor as element \d+ in argument \d+, but got (?P<kind>[\w.]+)",
    )
    not_in_a_log = "what gave that value"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        kind, before = match["kind"], _preceding_layer_in_sequential(crash)
        found = next((each for each in crash.values if type(each.value).__name__ == kind), None)
        made = crash.made(found.name) if found else None
        where = f", from line {made.number}: {made.text}" if made else ""
        name = f"`{found.name}`{where} is" if found else "the value is"
        holds = (
            {"holds": "texts"}
            if any(_is_container_of_strings(each.value, kind) for each in crash.values)
            else {}
        )
        return {"name": name} | ({"before": before} if before else {}) | holds


def _is_container_of_strings(value: Any, kind: str, depth: int = 2) -> bool:
    """Whether a value is a tuple or list of texts of that kind, or a batch that holds one; no code of a class of theirs runs."""
    if type(value) not in (tuple, list, dict):
        return False
    parts = list(islice(value.values() if type(value) is dict else value, 50))
    if type(value).__name__ == kind and parts and all(type(each) is str for each in parts):
        return True
    return depth > 0 and any(_is_container_of_strings(each, kind, depth - 1) for each in parts)


def _preceding_layer_in_sequential(crash: Crash) -> str:
    """Return the layer that comes before the failing one in an nn.Sequential, by its path in it."""
    for frame in reversed(crash.frames):
        names = frame.locals()
        owner: Any = names.get("self")
        if type(owner).__name__ == "Sequential" and "module" in names:
            layers = list(owner.named_children())
            place = next((index for index, (_, layer) in enumerate(layers) if layer is names["module"]), 0)
            if place:
                name, layer = layers[place - 1]
                return f"layer {name}, {describe_crash_layer(layer)},"
    return ""
