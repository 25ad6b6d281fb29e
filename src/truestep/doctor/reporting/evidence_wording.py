# SPDX-License-Identifier: Apache-2.0
"""What a check measured, in sentences: each name that checks give to evidence stands here with its words.

None says that the finding's message holds the value already; the JSON document has every one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from truestep.core.text_formatting import plural

Words = str | Callable[[Any], str] | None


def _comma_list(values: Sequence[Any]) -> str:
    return ", ".join(map(evidence_value_text, values))


def evidence_value_text(value: object) -> str:
    """Return a value as a sentence has it: four digits of a float, a list with commas."""
    if isinstance(value, (list, tuple)):
        return f"[{_comma_list(value)}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


WORDS: Mapping[str, Words] = {
    "after_steps": lambda steps: f"{steps} optimizer steps had been made by then.",
    "at_most_by_chance": lambda number: (
        f"Chance alone would give {f'at most {number:.4g}' if number else 'none'}."
    ),
    "backwards": None,
    "backwards_since_last_step": "backward() was called {} times since the step before.",
    "batch_size": "The batch size is {}.",
    "batches": None,
    "came_again": None,
    "classes": "There are {} classes.",
    "classes_in_turn": lambda classes: f"The classes came in this order: {_comma_list(classes)}.",
    "compared": None,
    "dead_units": None,
    "deviation": "Their standard deviation is {}.",
    "difference": None,
    "drop_last": lambda drops: "drop_last=True leaves out a batch that is not full." if drops else "",
    "dtype": "The parameters are {}.",
    "epoch": None,
    "eps": "The optimizer's eps is {}.",
    "evaluated": None,
    "examples": "The data set has {} examples.",
    "first_layer": "The norm of the first layer's gradients is {}.",
    "first_loss": None,
    "first_norms": "The first norms were about {}.",
    "given": None,
    "ignore_index": "ignore_index is {}.",
    "in_both": None,
    "largest": "The largest is {}.",
    "layers": None,
    "learning_rates": lambda rates: f"The learning rates are {_comma_list(rates)}.",
    "loss": "The loss is {}.",
    "loss_at_first": "The loss began at {}.",
    "lost": None,
    "made_at": None,
    "made_by": None,
    "mean": "Their mean is {}.",
    "model": "The model is {}.",
    "norm": "The norm is {}.",
    "not_optimized": lambda names: f"Not held by an optimizer: {', '.join(map(str, names))}.",
    "number": None,
    "of_best_constant": "The best constant answer gives {}.",
    "of_guessing": None,
    "other_made_at": "The other was made at {}.",
    "padding": None,
    "parameters": None,
    "prediction": None,
    "processes": lambda names: f"Seen in {', '.join(map(str, names))}.",
    "reached": None,
    "relative_influence": "Its share in the output is {}.",
    "replaced": None,
    "scores": "The scores have the shape {}.",
    "seen_as": lambda codes: f"Running shows it too, as {_comma_list(codes)}.",
    "shared": None,
    "step": "Seen at optimizer step {}.",
    "steps": None,
    "steps_not_cleared": None,
    "sum": None,
    "symbols": "The symbols have the shape {}.",
    "target": None,
    "targets": "The targets: {}.",
    "tolerance": "Up to {} counts as rounding.",
    "trained_on_and_looked_at": "They were compared with {} training examples.",
    "training_set": lambda number: f"The training loader has {plural(number, 'example')}." if number else "",
    "units": None,
    "value": None,
    "weight": "It counts {} times in the loss.",
    "with_another_target": None,
    "without_gradient": None,
}


def evidence_sentences(evidence: Mapping[str, Any]) -> str:
    """Return what the evidence adds to the message; the empty text where it adds nothing."""
    found = (_evidence_sentence(name, value) for name, value in evidence.items())
    return " ".join(each for each in found if each)


def _evidence_sentence(name: str, value: object) -> str:
    words = WORDS.get(name, f"{name.replace('_', ' ').capitalize()}: {{}}.")
    if words is None:
        return ""
    return words(value) if callable(words) else words.format(evidence_value_text(value))
