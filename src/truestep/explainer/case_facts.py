# SPDX-License-Identifier: Apache-2.0
"""What the cases of an error's page may name of a run: the message's own groups, and evidence, asked for where it is named."""

from collections.abc import Callable, Mapping
from typing import Any

from truestep.explainer.crash import Crash
from truestep.explainer.origins import dataset_being_read
from truestep.explainer.run_sentences import (
    describe_running_layer,
    describe_value_with_origin,
    input_sentence,
    shapes_on_line_text,
    tensors_on_line_where,
)


class ErrorCaseFacts(dict[str, str]):
    """Facts by name; a KeyError for one that is not known. `concerns` says which tensors on the line are meant."""

    def __init__(
        self, crash: Crash, groups: Mapping[str, str], concerns: Callable[[Any], bool], verdict: str
    ) -> None:
        super().__init__(groups)
        self._crash, self._concerns, self._verdict = crash, concerns, verdict

    def __missing__(self, name: str) -> str:
        """Return what `layer`, `tensor` and so on stand for."""
        found = self._gather_evidence(name.removeprefix("and_"))
        if name.startswith("and_"):
            return f": {found}" if found else ""
        if found is None:
            raise KeyError(name)
        return found

    def _gather_evidence(self, name: str) -> str | None:
        crash = self._crash
        if name == "tensor":
            found = tensors_on_line_where(crash, self._concerns)
            return describe_value_with_origin(crash, found[0]) if found else None
        if name == "verdict":
            return failed_environment_verdict(self._verdict) if crash.is_live else None
        if name == "shapes":
            return shapes_on_line_text(crash) or None
        known = {"layer": describe_running_layer, "input": input_sentence, "data_set": dataset_being_read}
        return known[name](crash) if name in known else None


def failed_environment_verdict(name: str) -> str | None:
    """Return what a verdict of `truestep env` says that is no pass; None where it is one, or can't be judged."""
    from truestep.machine.environment import environment

    verdicts = (each for each in environment().verdicts if each.name == name)
    return next((each.says for each in verdicts if each.status in ("fail", "warn")), None)
