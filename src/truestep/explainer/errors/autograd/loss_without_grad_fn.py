# SPDX-License-Identifier: Apache-2.0
import linecache
import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.origins import files_defining_user_models, no_grad_function_of_value
from truestep.explainer.run_sentences import made_at_line_phrase, num_parameters_if_all_frozen, running_models
from truestep.explainer.source import (
    UserSourceLine,
    crashed_line_text,
    crashed_line_without_strings,
    parse_crashed_file,
)
from truestep.explainer.values import torch_if_imported


class LossWithoutGradFn(Explainer):
    """backward is called on a value that no parameter led to.

    Means: the loss has no graph: it was computed under no_grad, from detached values, or all parameters are frozen.

    Raises:
        prediction = torch.zeros(3)
        prediction.sum().backward()

    Works:
        prediction = torch.zeros(3, requires_grad=True)
        prediction.sum().backward()

    Fix: look between model and loss for no_grad, detach(), .data, .item(), numpy(), argmax or torch.tensor(loss), which cut
    the graph; and count what trains: sum(p.requires_grad for p in model.parameters()).

    Cases:
        `switched=off`: gradients are switched off here (no_grad, inference_mode or set_grad_enabled(False)).
        otherwise: `{updated}` is what net.update gave: it has gone back and stepped already.
            Fix: leave backward() and step() out: net.update(loss, batch) does both, with the function that computes the
            loss. To log the value, read float(update.loss).
        otherwise: `{loss}` was made without gradients: {off}. Fix: take the decorator away for training.
        otherwise: the graph between `{trains}`, which trains, and the loss was cut{cut}.
            Fix: take that out. `{owner}` may stay frozen: a gradient goes through frozen weights to what comes before them,
            and detach() belongs into the step that trains `{owner}`.
        otherwise: no parameter of `{owner}` requires a gradient: all {num} are frozen.
            Fix: unfreeze what is to be trained (requires_grad_(True)); a layer that replaces a head is made after the
            freezing.
        otherwise: the graph was cut before it{cut}.
    """

    messages = (
        r"element (?P<index>\d+) of (?:tensors|variables) does not require grad and does not have a grad_fn",
        r"tensors? does not require grad and does not have a grad_fn",
    )
    checks = ("GRAD022", "PARAM014", "GRAD024")
    not_in_a_log = "where the graph was cut: the lines between model and loss"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        torch = torch_if_imported()
        if not crash.is_live or torch is None:
            return {}
        if not torch.is_grad_enabled():
            return {"switched": "off"}
        if name := _name_of_update_result(crash):
            return {"updated": name}
        for loss in crash.tensors:
            if (off := no_grad_function_of_value(crash, loss.name)) is not None:
                return {"loss": loss.name, "off": off}
        models = [*running_models(crash)]
        frozen = next(
            ((owner, num) for owner, model in models if (num := num_parameters_if_all_frozen(model))), None
        )
        if frozen is None:
            return _graph_cut_facts(_last_graph_cutting_line(crash, files_defining_user_models(crash)))
        facts = {"owner": frozen[0], "num": str(frozen[1])}
        trains = next(
            (
                name
                for name, model in models
                if not num_parameters_if_all_frozen(model)
                and next(iter(model.parameters()), None) is not None
            ),
            "",
        )
        cut = _last_graph_cutting_line(crash, ()) if trains else None
        is_between = cut is not None and _is_cut_value_passed_to_model(crash, cut, frozen[0])
        return facts | ({"trains": trains, **_graph_cut_facts(cut)} if is_between else {})


def _name_of_update_result(crash: Crash) -> str:
    """Return the name on the user's line that holds what `net.update` gave, or a value of it."""
    from truestep.engine.learner import Learner
    from truestep.engine.result import Update

    if crash.user is None:
        return ""
    names = crash.user.locals()
    written = re.findall(r"\w+", crash.user.text)
    if held := [name for name in written if isinstance(names.get(name), Update)]:
        return f"{held[0]}.loss"
    for each in crash.tensors:
        made = crash.made(each.name)
        learner = re.search(r"(\w+)\.update\(", made.text if made else "")
        if learner and isinstance(names.get(learner[1]), Learner):
            return each.name
    return ""


_MOST_LINES = 12  # of a block under no_grad
_CUTS = (
    ".detach()", ".data", ".item()", ".numpy()", "argmax(", "torch.tensor(", "no_grad()", "inference_mode()",
    "as_tensor(", ".tolist()",
)  # fmt: skip


def _graph_cut_facts(line: UserSourceLine | None) -> dict[str, str]:
    return {"cut": made_at_line_phrase(line).replace(", made", "")} if line else {}


def _is_cut_value_passed_to_model(crash: Crash, cut: UserSourceLine, model: str) -> bool:
    """Whether what a line cuts off is what a model is given, there or anywhere in the function."""
    live = crash.user.live if crash.user else None
    first, last = (live.f_code.co_firstlineno, live.f_lineno) if live else (cut.number, cut.number)
    lines = [crashed_line_without_strings(cut.path, number) for number in range(first, last + 1)]
    if re.search(rf"\b{re.escape(model)}\(.*(?:{'|'.join(map(re.escape, _CUTS))})", cut.text):
        return True
    names = "|".join(re.escape(name) for name in _names_assigned_at(cut)) or "(?!)"
    return any(re.search(rf"\b{re.escape(model)}\([^()]*\b(?:{names})\b", line) for line in lines)


def _names_assigned_at(cut: UserSourceLine) -> Iterator[str]:
    """Yield what a line gives a value, or the block that it begins does."""
    raw = linecache.getline(cut.path, cut.number)
    indent = len(raw) - len(raw.lstrip())
    block = [raw]
    if cut.text.rstrip().endswith(":"):
        behind = range(cut.number + 1, cut.number + _MOST_LINES)
        following = [linecache.getline(cut.path, number) for number in behind]
        block += takewhile(lambda line: len(line) - len(line.lstrip()) > indent, following)
    for line in block:
        if made := re.match(r"\s*(?:with .*:\s*)?([\w.]+)\s*=[^=]", line):
            yield made[1]


def _last_graph_cutting_line(crash: Crash, files: Iterable[str]) -> UserSourceLine | None:
    """Return the last line before the backward that cuts graphs: in the same function, then in these files."""
    user = crash.user
    if user is None or user.live is None or parse_crashed_file(user.path) is None:
        return None
    first = user.live.f_code.co_firstlineno
    places = [(user.path, number) for number in range(user.line, first - 1, -1)]
    for path in files:
        if path != user.path:
            places += [(path, number) for number in range(1, len(linecache.getlines(path)) + 1)]
    for path, number in places:
        text = crashed_line_text(path, number)
        if not text.startswith("#") and any(cut in text.replace(".data(", "") for cut in _CUTS):
            return UserSourceLine(path, number, crashed_line_without_strings(path, number))
    return None
