# SPDX-License-Identifier: Apache-2.0
"""`ts.graph`: a model's modules and its autograd graph, folded, as pictures and as text."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from truestep.core.atomic_files import explain_unwritable
from truestep.core.charts.standalone_svg import svg_image
from truestep.core.errors import MissingPackageError, ModelError, OptionError, check_choice, names_hint
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import bytes_text
from truestep.model.calling import Arguments, preserve_model_state
from truestep.model.graph import mermaid_and_dot
from truestep.model.graph.backward import AutogradGraphCollector
from truestep.model.graph.graph_nodes import TracedGraph
from truestep.model.graph.picture import Picture, pictures_at_all_depths
from truestep.model.graph.repeat_folding import GraphRepeatFolder
from truestep.model.graph.tracing import trace_model
from truestep.model.summaries.flop_counting import model_error_of_forward
from truestep.model.summaries.memory import initialize_lazy_layers, run_without_values

Kind = Literal["modules", "autograd"]
MAX_VISIBLE = 60  # boxes; more than that nobody reads at once


@dataclass(frozen=True, kw_only=True)
class ModelGraph(Result):
    """A model's graphs at every depth; `autograd` is empty where nothing of the model is trained."""

    model: str
    modules: tuple[Picture, ...]
    autograd: tuple[Picture, ...]
    saved_bytes: int  # what the forward keeps for the backward, weights left out
    notes: tuple[str, ...]

    def picture(self, depth: int | None = None, kind: Kind = "modules") -> Picture:
        """Return the graph at one depth; by default the deepest that shows at most 60 boxes."""
        check_choice("picture", "kind", kind, ("modules", "autograd"))
        found = self.modules if kind == "modules" else self.autograd
        if not found:
            raise OptionError(f"There is no autograd graph: {' '.join(self.notes)}")
        if depth is None:
            return next((each for each in reversed(found) if len(each.boxes) <= MAX_VISIBLE), found[0])
        if not isinstance(depth, int) or not 1 <= depth <= len(found):
            raise OptionError(f"depth={depth!r}: the graph has the depths 1 to {len(found)}.")
        return found[depth - 1]

    def mermaid(self, depth: int | None = None, kind: Kind = "modules") -> str:
        """Return a picture in Mermaid's language, which GitHub and many editors draw."""
        return mermaid_and_dot.mermaid_text_of_picture(self.picture(depth, kind))

    def dot(self, depth: int | None = None, kind: Kind = "modules") -> str:
        """Return a picture in Graphviz's language."""
        return mermaid_and_dot.graphviz_text_of_picture(self.picture(depth, kind))

    def svg(self, depth: int | None = None, kind: Kind = "modules") -> str:
        """Return a picture as an SVG document; needs the extra `[graph]`."""
        from truestep.model.graph.drawing import picture_svg_document

        return picture_svg_document(self.picture(depth, kind))

    def save(self, path: str | Path, depth: int | None = None, kind: Kind = "modules") -> Path:
        """Write a file: .html (a page) and .json with all depths; .svg, .mmd (Mermaid) and .dot of one; see `picture`.

        Pages and SVG need the extra `[graph]`.
        """
        path = Path(path)
        writers: dict[str, Callable[[], str]] = {
            ".html": self._html_page,
            ".svg": lambda: self.svg(depth, kind),
            ".mmd": lambda: self.mermaid(depth, kind),
            ".dot": lambda: self.dot(depth, kind),
            ".json": lambda: json.dumps(self.to_dict(), indent=2),
        }
        if path.suffix not in writers:
            raise OptionError(f"{path.name} says no format. {names_hint(path.suffix, writers)}")
        text = writers[path.suffix]()
        with explain_unwritable("The graph", path):
            path.write_text(text, encoding="utf-8")
        return path

    def _html_page(self) -> str:
        from truestep.model.graph.page import graph_page

        return graph_page(self)

    def shown(self, depth: int | None = None, kind: Kind = "modules") -> RenderableType:
        """Return a picture as a tree for the terminal."""
        from truestep.core.rich_imports import Group, Text
        from truestep.model.graph.screen import picture_tree

        picture = self.picture(depth, kind)
        depths = len(self.modules if kind == "modules" else self.autograd)
        words = f"{len(picture.boxes)} boxes at depth {picture.depth} of {depths}"
        kept = f"; the forward keeps {bytes_text(self.saved_bytes)} for the backward" * bool(self.saved_bytes)
        return Group(picture_tree(self.model, picture), Text("\n".join(["", words + kept, *self.notes])))

    def __rich__(self) -> RenderableType:
        return self.shown()

    def _repr_html_(self) -> str:
        try:
            return svg_image(self.svg(), f"Graph of {self.model}")
        except MissingPackageError:
            return super()._repr_html_()


def graph(model: object, batch: Any, *, saved: bool = False, attributes: bool = False) -> ModelGraph:
    """Trace one forward of a module (or a learner) and return its graphs: modules and operations, and autograd's.

    Blocks that repeat are rolled up, with their number; a module that is called in several places is one box. The model runs
    without values; where it can't, it runs on the batch itself. It stays as it is.

    Args:
        model: the module.
        batch: what the forward takes: a tensor, a tuple of arguments, a dict of them by name.
        saved: show in the autograd graph which tensors each step saves for the backward, with their bytes.
        attributes: show what else it saves: sizes, strides, factors.

    Raises:
        ModelError: the forward fails; the message names the module, what it got and the cause.
    """
    module, arguments, notes = initialize_lazy_layers(model, batch, "ts.graph")
    with preserve_model_state(module):
        (modules, backward), problem = _trace_without_values_or_with(module, arguments)
    saved_bytes = backward.describe(saved=saved, attributes=attributes)
    GraphRepeatFolder(modules).roll()
    GraphRepeatFolder(backward.graph).roll()
    has_backward = bool(backward.graph.edges)
    if not has_backward:
        notes.append("No output depends on a trainable parameter, so there is no autograd graph.")
    return ModelGraph(
        model=type(module).__name__,
        modules=pictures_at_all_depths(modules),
        autograd=pictures_at_all_depths(backward.graph) if has_backward else (),
        saved_bytes=saved_bytes,
        notes=(*notes, *problem),
    )


def _trace_without_values_or_with(
    module: nn.Module, arguments: Arguments
) -> tuple[tuple[TracedGraph, AutogradGraphCollector], list[str]]:
    traced, reason = run_without_values(trace_model, module, arguments)
    if traced is not None:
        return traced, []
    note = f"Traced by running the model itself on this batch: it does not run without values ({reason})."
    try:
        return trace_model(module, arguments), [note]
    except ModelError as error:
        raise model_error_of_forward(module, arguments) or error from None
