# SPDX-License-Identifier: Apache-2.0
"""Wrong calls are answered with what to write, of every public function; a decorated function is otherwise what it was."""

import inspect
import pickle

import numpy as np
import pytest
import torch

import truestep as ts
from truestep.core.argument_errors import methods_raise_option_errors, raises_option_errors
from truestep.core.errors import OptionError
from truestep.core.guidance import guidance_by_name, option_by_other_name
from truestep.engine.sequential_losses import Accumulating
from truestep.recipes.loading.find import recipes
from truestep.recipes.loading.parse import load_recipe


@raises_option_errors("make")
def make(size, *, color="blue", weight=1.0):
    """Make something."""
    return size, color, weight


@methods_raise_option_errors("it")
class Made:
    def move(self, place, *, speed=1.0):
        return place, speed

    def stop(self):
        return self


def test_right_calls_go_through():
    assert make(1, color="red") == (1, "red", 1.0)
    assert make(size=2) == (2, "blue", 1.0)
    assert str(inspect.signature(make)) == "(size, *, color='blue', weight=1.0)"
    assert make.__doc__ == "Make something."
    assert Made().move(1) == (1, 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make(1, wieght=1),
            "make has no option 'wieght'. Did you mean 'weight'.*There are: color, size, weight",
        ),
        (
            lambda: make(1, "red", 2.0),
            r"make takes size by place, and all else by name: make\(size, color=..., weight=...\)",
        ),
        (lambda: Made().move(1, sped=2.0), "it.move has no option 'sped'. Did you mean 'speed'"),
        (
            lambda: Made().move(1, 2.0),
            r"it.move takes place by place, and all else by name: it.move\(place, speed=...\)",
        ),
        (make, r"make was not given size\. Write make\(size\)\."),
        (lambda: make(color="red"), r"make was not given size\."),
        (lambda: Made().move(speed=1.0), r"it\.move was not given place\. Write it\.move\(place\)\."),
        (lambda: Made().stop(now=True), r"it.stop takes nothing: write it.stop\(\)"),
        (lambda: Made().stop(1), r"it.stop takes nothing: write it.stop\(\)"),
    ],
)
def test_wrong_ones_are_answered(call, message):
    with pytest.raises(OptionError, match=message) as caught:
        call()
    assert caught.value.__cause__ is None  # python's words for it would stand above


def test_a_type_error_within_the_function_stays_what_it_is():
    @raises_option_errors("broken")
    def broken(size, *, color=None):
        return size + None

    with pytest.raises(TypeError, match="unsupported operand"):
        broken(1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'length'"):
        raises_option_errors("outer")(lambda: inspect.unwrap(make)(length=3))()


def public_callables():
    """Yield what users call, by the name that they call it by: functions, constructors, methods of what a run hands out."""
    for package, called in ((ts, "ts"), (ts.nn, "ts.nn")):
        for name in package.__all__:
            public = getattr(package, name)
            constructor = vars(public).get("__init__") if isinstance(public, type) else None
            if inspect.isfunction(constructor or public):
                yield f"{called}.{name}", public
    for kind, called in (
        (ts.Run, "run"),
        (ts.Learner, "net"),
        (Accumulating, "update"),
        (ts.CheckpointStore, "store"),
    ):
        for name, method in vars(kind).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                yield f"{called}.{name}", method


CALLABLES = dict(public_callables())
ANSWERED_WHOLE = {  # with a form of their own
    *("ts.Learner", "ts.update", "net.update", "net.evaluate"),
    *("run.learner", "run.data", "run.epochs", "run.steps"),
}
TAKES_ANY = {  # names that the caller chooses
    *("ts.weighted", "ts.plateau", "run.data", "run.track", "run.log"),
    "ts.WandbTracker",  # what wandb.init takes
}


def options(function):
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.name != "self" and each.kind in (1, 3)]


def misspelt(word):
    return word[: len(word) // 2] + word[len(word) // 2 + 1 :]


FLAGS = [
    (called, name)
    for called, function in CALLABLES.items()
    for name, each in inspect.signature(function).parameters.items()
    if each.annotation in (bool, "bool")
]


@pytest.mark.parametrize("value", ["no", "False", "", 0, 1, None, torch.tensor(True)], ids=repr)
def test_a_flag_of_anything_public_is_true_or_false(value):
    assert len(FLAGS) > 40
    for called, name in FLAGS:
        with pytest.raises(OptionError) as caught:
            CALLABLES[called](**{name: value})
        assert str(caught.value).startswith(f"{called}({name}={value!r}): write True or False")
        assert ("any text counts as true" in str(caught.value)) == isinstance(value, str)


def test_a_truth_value_of_numpy_is_one():
    assert torch.equal(ts.from_numpy(np.ones(2), copy=np.bool_(True)), torch.ones(2).double())


def test_all_that_takes_any_name_is_named():
    """What is left out below is left out for a reason."""
    found = {
        called
        for called, function in CALLABLES.items()
        if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())
    }
    assert found == TAKES_ANY


@pytest.mark.parametrize("called", sorted(CALLABLES.keys() - TAKES_ANY))
def test_every_option_of_everything_public_is_named_where_it_is_misspelt(called):
    function = CALLABLES[called]
    for option in options(function):
        word = misspelt(option)
        if word in options(function) or not word:
            continue
        with pytest.raises(OptionError) as caught:
            function(**{word: None})
        said = str(caught.value)
        start = f"{called} has no option {word!r}. "
        assert said.startswith(start)
        first, _, listed = said.removeprefix(start).partition("There are:")
        assert option in (first if len(option) > 3 else listed)


def required(function):
    parameters = inspect.signature(function).parameters.values()
    return [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (2, 4) and each.name != "self"
    ]


@pytest.mark.parametrize("called", [name for name in CALLABLES if required(CALLABLES[name])])
def test_every_required_argument_of_everything_public_is_named_where_it_is_missing(called):
    function = CALLABLES[called]
    owner = (None,) if "self" in inspect.signature(function).parameters else ()
    with pytest.raises(OptionError) as caught:
        function(*owner)
    said = str(caught.value)
    if called in ANSWERED_WHOLE:
        assert f"{called}(" in said or called == "ts.Learner"
        return
    assert said.startswith(f"{called} was not given {' and '.join(required(function))}. Write {called}(")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ts.Saving(monitor="accuracy"), r"Here it is called best: ts.Saving\(best=\"accuracy\"\)"),
        (lambda: ts.Saving(best="accuracy", best_mod="min"), "Did you mean 'best_mode'"),
        (lambda: ts.Saving(patience=3), r"ts.EarlyStopping\(patience=3"),
        (ts.Update, r"update = net.update\(loss, batch\)"),
        (lambda: ts.Update(None, skipped=False), r"update = net.update\(loss, batch\)"),
        (lambda: ts.ClipNorm(max=1.0), r"ts.ClipNorm\(max_norm=1.0\)"),
        (lambda: ts.EMA(beta=0.9), r"ts.EMA\(decay=0.9\)"),
        (lambda: ts.warmup_cosine(None, warmup=10), r"ts.warmup_cosine\(warmup_steps=10\)"),
        (
            lambda: ts.warmup_cosine(None, 10, 100),
            r"ts.warmup_cosine\(optimizer, warmup_steps=..., total_steps=...\)",
        ),
        (
            lambda: ts.gradient_penalty(len, None, lambda_gp=10),
            r"10 \* ts.gradient_penalty\(critic, real, fake\)",
        ),
        (lambda: ts.plateau(None, metric="loss", patiense=3), "Did you mean 'patience'"),
        (lambda: ts.plateau(None, monitor="loss"), "Here it is called metric"),
        (
            lambda: ts.weighted(torch.ones(2), mask=torch.ones(2)),
            r"ts.weighted has no option 'mask', and would log it.*weights=",
        ),
    ],
)
def test_the_words_of_other_libraries_are_answered(call, message):
    with pytest.raises(ts.TruestepError, match=message):
        call()


def test_the_tables_of_words_name_what_is_there():
    known = {option for function in CALLABLES.values() for option in options(function)} | {
        "weights",
        "collate",
        "batch_size",
    }
    known |= set(ts.DataOptions.__dataclass_fields__)
    known |= {
        field for path in recipes().values() for field in load_recipe(path).Config.__dataclass_fields__
    } | {"out", "fail_on"}  # of the command line
    assert guidance_by_name("NAME=...").keys() <= known
    # what a framework's module has is no name of the package's own
    of_frameworks = {each for each in guidance_by_name("NAME(...)") if each.count(".") > 1}
    assert of_frameworks <= {"ts.transformers.ExactResume"}
    assert guidance_by_name("NAME(...)").keys() - of_frameworks <= CALLABLES.keys()
    for function in CALLABLES.values():
        names = options(function)
        assert not [name for name in names if option_by_other_name(name, names) not in (None, name)]


def test_public_functions_are_pickled_by_their_names_and_keep_their_signature():
    for called, function in CALLABLES.items():
        if called.startswith("ts.") and inspect.isfunction(function):
            assert pickle.loads(pickle.dumps(function)) is function
            assert inspect.signature(function) == inspect.signature(inspect.unwrap(function))


def test_what_is_called_in_a_loss_compiles_to_one_graph():
    def loss(values):
        return ts.weighted(values * 2, torch.ones_like(values)).values

    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
