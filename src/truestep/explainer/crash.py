# SPDX-License-Identifier: Apache-2.0
"""What is known of one error: its type and message, the frames it came through, the values on its line.

It comes from a live exception, with frames that can be looked into, or from a log, with their text alone.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any

from truestep.core.user_frames import is_library_file
from truestep.explainer.source import (
    Node,
    UserSourceLine,
    crashed_line_text,
    failing_expression,
    file_name_of_any_system,
    last_assignment_line,
    parsed_traceback_line,
)
from truestep.explainer.values import (
    ValueOnLine,
    describe_crash_layer,
    is_layer_at_crash,
    is_tensor_at_crash,
    values_in_failing_expression,
)

# a log's paths are of another machine, so that their form is all there is to go by
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python|(?:python|conda)[\d.]*/lib/|/envs/[^/]+/lib/|^<frozen|^<string>|^<eval_with_key>|/torchinductor_",
    re.I,
)
# of a tensor's class or a mode: torch calls them around every operation
_CALLED_BACK = {"__torch_function__", "__torch_dispatch__"}


@dataclass(frozen=True)
class CrashFrame:
    """One call that the error came through."""

    path: str
    line: int
    function: str
    text: str = ""  # the line, as the file or the log has it
    live: FrameType | None = field(default=None, repr=False, compare=False)
    last_line: int = 0
    columns: tuple[int, int] | None = None

    @property
    def is_users(self) -> bool:
        """Whether it is the user's own code, not Python's or a package's."""
        if self.live is not None:
            return not is_library_file(self.path)
        return not _LIBRARY.search(self.path.replace("\\", "/"))

    @property
    def place(self) -> str:
        """Return the place as people write it."""
        return f"{file_name_of_any_system(self.path)}:{self.line}"

    def locals(self) -> dict[str, Any]:
        """Return the names of a live frame."""
        return dict(self.live.f_locals) if self.live is not None else {}

    def lookup(self, name: str) -> Any:
        """Return what a name stands for there; None where it stands for nothing, and in a log."""
        return self.locals().get(name, self.live.f_globals.get(name)) if self.live is not None else None

    def expression(self) -> ast.AST | None:
        """Return what was being evaluated."""
        if self.live is not None:
            found = failing_expression(self.path, self.line, self.last_line or self.line, self.columns)
            return found or parsed_traceback_line(self.text)
        return parsed_traceback_line(self.text)

    def values(self) -> tuple[ValueOnLine, ...]:
        """Return the values that the line names; none in a log."""
        expression = self.expression()
        if self.live is None or expression is None:
            return ()
        return tuple(values_in_failing_expression(expression, self.locals(), self.live.f_globals))


@dataclass(frozen=True)
class RunningLayer:
    """A layer that was running, by the name that its model has for it."""

    path: str
    module: Any
    frame: CrashFrame

    def __str__(self) -> str:
        return (
            f"{self.path} = {describe_crash_layer(self.module)}"
            if self.path
            else describe_crash_layer(self.module)
        )


@dataclass(frozen=True)
class Crash:
    """One error, with what led to it."""

    type_names: tuple[str, ...]  # the type's own name, then its bases' where they are known
    message: str
    frames: tuple[CrashFrame, ...] = ()  # outermost first
    is_live: bool = False
    error: BaseException | None = field(default=None, repr=False, compare=False)
    context: str = ""  # in a log: the lines before and after

    @property
    def title(self) -> str:
        """Return type and first line, as a traceback ends."""
        first = self.message.strip().split("\n", 1)[0][:300]
        name = self.type_names[0] if self.type_names else ""
        return f"{name}: {first}" if name and first else name or first

    @property
    def text(self) -> str:
        """Return the message, and in a log what stands around it."""
        return f"{self.message}\n{self.context}"

    @cached_property
    def user(self) -> CrashFrame | None:
        """Return the innermost frame of the user's own code; one that torch called back only where there is no other."""
        own = [frame for frame in reversed(self.frames) if frame.is_users]
        return next((frame for frame in own if frame.function not in _CALLED_BACK), next(iter(own), None))

    @cached_property
    def values(self) -> tuple[ValueOnLine, ...]:
        """Return the values on the user's line."""
        return self.user.values() if self.user else ()

    def written(self, kind: type[Node]) -> list[Node]:
        """Return what is written on the user's line of one kind of expression."""
        expression = self.user.expression() if self.user else None
        return [node for node in ast.walk(expression) if isinstance(node, kind)] if expression else []

    @property
    def tensors(self) -> tuple[ValueOnLine, ...]:
        """Return the tensors on the user's line."""
        return tuple(each for each in self.values if is_tensor_at_crash(each.value))

    @cached_property
    def layer(self) -> RunningLayer | None:
        """Return the innermost layer that was running."""
        running = [(frame, frame.locals().get("self")) for frame in self.frames if frame.live is not None]
        layers = [(frame, layer) for frame, layer in running if is_layer_at_crash(layer)]
        if not layers:
            return None
        frame, innermost = layers[-1]
        path = _module_path_in_root(innermost, layers[0][1])
        owner = self._variable_name_of_model(layers[0][1])
        return RunningLayer(".".join(part for part in (owner, path) if part), innermost, frame)

    def _variable_name_of_model(self, module: Any) -> str:
        """Return what the user's code calls a model."""
        for frame in self.frames:
            if frame.is_users:
                for name, value in frame.locals().items():
                    if value is module and name != "self":
                        return name
        return ""

    def users_locals(self) -> Iterator[tuple[CrashFrame, str, Any]]:
        """Yield every name of the user's running functions, innermost first."""
        for frame in reversed(self.frames):
            if frame.is_users and frame.live is not None:
                for name, value in frame.locals().items():
                    if not name.startswith("__"):
                        yield frame, name, value

    def made(self, name: str) -> UserSourceLine | None:
        """Return the line that gave a name on the user's line its value."""
        if self.user is None:
            return None
        if not self.is_live and crashed_line_text(self.user.path, self.user.line) != self.user.text.strip():
            return None  # the file here is not the one that the log tells of
        return last_assignment_line(self.user.path, name, self.user.line)


def _module_path_in_root(layer: Any, root: Any) -> str:
    from torch import nn  # the model is one, so that torch is there

    for path, each in nn.Module.named_modules(root):  # not root's own, which may be the user's code
        if each is layer:
            return str(path)
    return ""


def crash_from_exception(error: BaseException) -> Crash:
    """Return what is known of a live exception."""
    frames = []
    trail = error.__traceback__
    while trail is not None:
        frames.append(_crash_frame_from_live(trail.tb_frame, trail.tb_lineno, trail.tb_lasti))
        trail = trail.tb_next
    names = tuple(_qualified_type_name(kind) for kind in type(error).__mro__ if kind is not object)
    return Crash(names, str(error), tuple(frames), is_live=True, error=error)


def _qualified_type_name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _crash_frame_from_live(live: FrameType, line: int, instruction: int) -> CrashFrame:
    code = live.f_code
    first, last, begin, end = list(code.co_positions())[instruction // 2] if instruction >= 0 else (line,) * 4
    exact = None not in (first, last, begin, end) and first == line
    return CrashFrame(
        path=code.co_filename,
        line=line,
        function=code.co_name,
        text=crashed_line_text(code.co_filename, line),
        live=live,
        last_line=(last or line) if exact else line,
        columns=(int(begin or 0), int(end or 0)) if exact else None,
    )
