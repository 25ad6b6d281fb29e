# SPDX-License-Identifier: Apache-2.0
"""`Net(num_classes=args.batch_size)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.questions import mentions_torch
from truestep.doctor.source.signatures import called, own_name, positional
from truestep.doctor.source.values import constant

# what every training has, by the names that the field gives it
_QUANTITIES = {
    "the batch size": "batch_size batchsize train_batch_size test_batch_size eval_batch_size",
    "the number of classes": "num_classes n_classes nb_classes num_labels n_labels num_class n_class nclass no_classes",
    "the learning rate": "lr learning_rate base_lr init_lr initial_lr",
    "the weight decay": "weight_decay",
    "the momentum": "momentum",
    "the dropout": "dropout dropout_rate dropout_prob drop_rate drop_prob",
    "the number of workers": "num_workers n_workers",
    "the number of epochs": "epochs num_epochs n_epochs max_epochs",
    "the seed": "seed random_seed manual_seed",
}
_OF_NAME = {name: quantity for quantity, names in _QUANTITIES.items() for name in names.split()}


class ArgumentOfOtherQuantity(SourceCheck):
    """One setting is given where another is taken: the batch size as the number of classes, the decay as the rate.

    Why: both are numbers, so nothing fails, and the net or the training is not the one that was set up.

    Bad:
        settings = {"lr": 0.1, "weight_decay": 1e-4}
        opt = torch.optim.SGD(net.parameters(), lr=settings["weight_decay"])  # here

    Good:
        settings = {"lr": 0.1, "weight_decay": 1e-4}
        opt = torch.optim.SGD(net.parameters(), lr=settings["lr"])

    Fix: give the setting that the parameter is for.
    """

    code = "VALUE035"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report arguments whose own name is that of another quantity than the parameter's."""
        if not module.of_program(mentions_torch):
            return
        for call in module.all(ast.Call):
            for taken, given in _taken(module, call):
                wanted, named = _OF_NAME.get(taken), _OF_NAME.get(_name_of(given))
                if wanted is not None and named is not None and wanted != named:
                    yield At(given, f"{ast.unparse(given)}, {named}, is given as {wanted} ({taken!r}).", RISK)


def _taken(module: SourceModule, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters of a call with what each is given."""
    for word in call.keywords:
        if word.arg is not None:
            yield word.arg, word.value
    if any(_name_of(each) in _OF_NAME for each in call.args):
        function = called(module, call)
        if function is not None and not any(isinstance(each, ast.Starred) for each in call.args):
            yield from zip(positional(function), call.args, strict=False)


def _name_of(node: ast.expr) -> str:
    """Return the last name of a value, or the key under which it is kept."""
    if isinstance(node, ast.Subscript):
        key = constant(node.slice)
        return key if isinstance(key, str) else ""
    return own_name(node) or ""
