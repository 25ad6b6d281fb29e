# SPDX-License-Identifier: Apache-2.0
import re

from truestep.explainer.explainer import Crash, Explainer, Match


class StateDictDoesNotFit(Explainer):
    """The names or shapes in a state dict are not the model's.

    Means: load_state_dict matches by name and shape; missing keys would keep their random values, so torch refuses.

    Raises:
        model = nn.Sequential(nn.Linear(2, 2))
        model.load_state_dict({"module.0.weight": torch.zeros(2, 2), "module.0.bias": torch.zeros(2)})

    Works:
        model = nn.Sequential(nn.Linear(2, 2))
        state = {"module.0.weight": torch.zeros(2, 2), "module.0.bias": torch.zeros(2)}
        model.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})

    Fix: build the model with the sizes it was trained with, and load the state dict itself (checkpoint["model"]). ts.load_weights
    knows the usual prefixes. strict=False only with its answer printed: it skips silently.

    Cases:
        otherwise: all keys of the file begin with "{file_prefix}", the model's do not: {why}.
            Fix: load {{key.removeprefix("{file_prefix}"): value for key, value in state.items()}}; save
            model.module.state_dict() or the plain model's next time.
        otherwise: the model's keys begin with "{own_prefix}", the file's do not: the model is wrapped here, it was not when
            saved.
            Fix: load before wrapping, or into the inner model: model.{inner}.load_state_dict(state).
        otherwise: the file is a whole checkpoint ({entries}), and not the state dict alone.
            Fix: write model.load_state_dict(checkpoint["{holder}"]).
        otherwise: the file is a whole checkpoint ({entries}), and not the state dict alone.
            Fix: load the part that holds the weights.
        otherwise: `{name}` is ({saved}) in the file and ({wanted}) in the model{more}.
            Fix: the last layers differ ({in_file} outputs in the file, {here} here): build the model with {in_file}, or
            leave these keys out and train that layer anew.
        otherwise: `{name}` is ({saved}) in the file and ({wanted}) in the model{more}.
            Fix: the model is built with other sizes than the one saved: take the sizes of the file, in the configuration.
        `only=missing`: {counted}.
            Fix: the model here has layers that the saved one had not: build it as it was, or load with strict=False and
            train them.
        `only=unexpected`: {counted}.
            Fix: the file has more than the model: leave those keys out, if the model was cut on purpose.
        otherwise: {counted}.
            Fix: another architecture, or another version of its code: build the model that was saved.
    """

    messages = (r"Error\(s\) in loading state_dict for (?P<model>\w+)",)
    checks = ("SAVE003",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        missing, unexpected = (
            _state_dict_keys_in_message(crash.message, "Missing"),
            _state_dict_keys_in_message(crash.message, "Unexpected"),
        )
        shapes = re.findall(
            r"size mismatch for (\S+): copying a param with shape (?:torch\.Size\()?\(?\[?([\d, ]*)\]?\)? from "
            r"checkpoint, the shape in current model is (?:torch\.Size\()?\(?\[?([\d, ]*)",
            crash.message,
        )
        found = (
            _key_prefix_facts(missing, unexpected)
            or _nested_state_dict_facts(missing, unexpected)
            or _shape_mismatch_facts(shapes, missing)
        )
        return found or _missing_and_unexpected_facts(match["model"], missing, unexpected)


def _state_dict_keys_in_message(message: str, kind: str) -> list[str]:
    found = re.search(rf"{kind} key\(s\) in state_dict: (.*?)(?:\.\s*$|\n|$)", message, re.MULTILINE)
    return re.findall(r'"([^"]+)"', found[1]) if found else []


_PREFIXES = {
    "module.": "nn.DataParallel or DistributedDataParallel put it there when saving",
    "_orig_mod.": "torch.compile put it there when saving",
    "model.": "a Lightning module or a class around the model put it there",
}


def _common_prefix(longer: list[str], shorter: list[str]) -> str:
    if not longer or not shorter:
        return ""
    short = set(shorter)
    ends = [key for key in longer if any(key.endswith(f".{other}") for other in short)]
    # Not all of them: a head that was replaced must not hide the prefix of all other keys.
    if len(ends) < 0.8 * min(len(longer), len(short)):
        return ""
    # The longest end: "module.0.weight" ends with "weight" too, if the model has such a key, and the prefix would be too long.
    other = max((each for each in short if ends[0].endswith(f".{each}")), key=len)
    prefix = ends[0].removesuffix(other)
    return prefix if sum(key.startswith(prefix) for key in longer) >= 0.8 * len(longer) else ""


_INNER = {
    "state_dict", "model", "model_state_dict", "net", "optimizer", "epoch", "optimizer_state_dict", "weights",
}  # fmt: skip


def _key_prefix_facts(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    """Return the prefix by which the keys of one side are longer than the other's."""
    if prefix := _common_prefix(unexpected, missing):
        why = _PREFIXES.get(prefix, "the model is an attribute of another module on one side")
        return {"file_prefix": prefix, "why": why}
    prefix = _common_prefix(missing, unexpected)
    return {"own_prefix": prefix, "inner": prefix.rstrip(".")} if prefix else {}


def _nested_state_dict_facts(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    inner = _INNER & set(unexpected)
    # A whole checkpoint has a handful of entries; a model may have layers with these names.
    if not missing or not inner or len(unexpected) > 20:
        return {}
    holders = [
        name for name in ("state_dict", "model_state_dict", "model", "net", "weights") if name in inner
    ]
    return {"entries": ", ".join(sorted(inner))} | ({"holder": holders[0]} if holders else {})


def _shape_mismatch_facts(shapes: list[tuple[str, str, str]], missing: list[str]) -> dict[str, str]:
    if not shapes:
        return {}
    name, saved, wanted = shapes[0]
    more = f", and {len(shapes) - 1} more" if len(shapes) > 1 else ""
    facts = {"name": name, "saved": saved, "wanted": wanted, "more": more}
    in_file, here = saved.split(",")[0], wanted.split(",")[0]
    is_last = len(shapes) <= 2 and in_file != here and not missing
    return facts | ({"in_file": in_file, "here": here} if is_last else {})


def _missing_and_unexpected_facts(model: str, missing: list[str], unexpected: list[str]) -> dict[str, str]:
    parts = [f"{len(missing)} keys of {model} are not in the file (first: {missing[0]})"] if missing else []
    if unexpected:
        parts.append(f"{len(unexpected)} of the file are not in {model} (first: {unexpected[0]})")
    only = "both" if len(parts) > 1 else "missing" if missing else "unexpected"
    return {"counted": "; ".join(parts), "only": only} if parts else {}
