# SPDX-License-Identifier: Apache-2.0
"""The table of guidance: each row answers where its heading says, and no name of it is one that is there."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import truestep as ts
from truestep.core import guidance as table
from truestep.core.guidance import as_sentence, foreign_name_advice, guidance, guidance_by_name
from truestep.engine.data.options import DataKeywords

TEXT = Path(table.__file__).with_suffix(".md").read_text("utf-8")
PLACES = sorted(
    {place for line in re.findall(r"^## (.+)$", TEXT, re.MULTILINE) for place in line.split(", ")}
)
ALL_CALLS = [each.removesuffix("(NAME=...)") for each in PLACES if each.endswith("(NAME=...)")]
CALLS = [each for each in ALL_CALLS if not each.endswith(".ExactResume")]  # which tests/frameworks holds
HELD = [each.removesuffix(".NAME") for each in PLACES if each.endswith(".NAME") and each != "ts.NAME"]
OF_FRAMEWORKS = {each for each in HELD if each.endswith(".exact")}  # held by tests/frameworks


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """What a user's variables hold, by what the table calls them."""
    with ts.Run(tmp_path_factory.mktemp("run"), device="cpu", progress=False, quiet=True) as run:
        net = run.learner(torch.nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1), ema=ts.EMA())
        rows = torch.ones(4, 3)
        found = {"ts": ts, "run": run, "net": net, "source": run.data(rows, batch_size=2), "ema": ts.EMA()}
        found |= {"block": net.accumulating(), "update": net.update(lambda x: net(x)[:, 0], rows)}
        found["store"] = ts.CheckpointStore(tmp_path_factory.mktemp("store"))
        found["early"] = ts.EarlyStopping(patience=3, mode="min")
        found["standardizer"], found["table"] = ts.nn.Standardizer(), ts.parameters(net)
        found["averaged"], found["watch"] = net.averaged(), ts.watch()
        found["averaged"]._was_entered = True
        found["watch"].if_never_begun.detach()
        yield found
        found["store"].close()


def called(things, call):
    """Return what a heading calls, as a user's variables have it."""
    owner, name = call.split(".")
    return getattr(things[owner], name)


@pytest.mark.parametrize("call", sorted({*CALLS} - {"run.log"}))
def test_each_option_is_answered_where_it_is_given(things, call):
    given = [torch.ones(4)] if call == "run.data" else []  # which looks at its options itself
    for row, said in guidance_by_name(f"{call}(NAME=...)").items():
        name, _, value = row.partition("=")
        with pytest.raises(ts.OptionError) as caught:
            called(things, call)(*given, **{name: value or None})
        assert str(caught.value) == f"{call} has no option {name!r}. Write {said}."


ELLIPSES = [
    (call, row)
    for call in CALLS
    for row, said in guidance_by_name(f"{call}(NAME=...)").items()
    if re.fullmatch(r"\w+=\.\.\.", said) and "=" not in row
]
OTHER_WORDS = [
    ("run.data", word, option)
    for option, words in guidance_by_name("NAME=...").items()
    for word in words.split()
    if option in DataKeywords.__annotations__
    and word not in guidance_by_name("run.data(NAME=...)").keys() | DataKeywords.__annotations__.keys()
]


@given(chosen=st.sampled_from(ELLIPSES), value=st.integers(0, 4096) | st.floats(0, 1))
def test_what_was_given_stands_in_the_line_to_write(things, chosen, value):
    call, row = chosen
    given_first = [torch.ones(4)] if call == "run.data" else []
    with pytest.raises(ts.OptionError) as caught:
        called(things, call)(*given_first, **{row: value})
    assert str(caught.value).endswith(f"={value!r}.")


@given(chosen=st.sampled_from(OTHER_WORDS), value=st.integers(0, 512) | st.booleans() | st.none())
def test_what_was_given_stands_behind_the_right_word(things, chosen, value):
    call, word, option = chosen
    with pytest.raises(ts.OptionError) as caught:
        called(things, call)(torch.ones(4), **{word: value})
    assert str(caught.value).endswith(f"Here it is called {option}: {call}({option}={value!r}).")


@pytest.mark.parametrize("value", [torch.ones(3), [1, 2], "a text of more than thirty letters, say"])
def test_what_is_long_is_not_written_out(things, value):
    with pytest.raises(ts.OptionError, match=r"run\.data\(batch_size=\.\.\.\)"):
        things["run"].data(torch.ones(4), bs=value)


@pytest.mark.parametrize("name", ["ignite", "fastai", "skorch"])
def test_libraries_without_a_callback_of_ours_are_answered(name):
    with pytest.raises(AttributeError, match=r"truestep doctor train\.py.*ExactResume is for Lightning"):
        getattr(ts, name)


def test_each_option_of_loggers_is_answered_where_it_would_be_logged(things):
    for name, said in guidance_by_name("run.log(NAME=...)").items():
        with pytest.raises(ts.OptionError, match=re.escape(said)):
            things["run"].log(accuracy=0.5, **{name: 1})


@pytest.mark.parametrize("variable", sorted({*HELD} - OF_FRAMEWORKS))
def test_each_name_is_answered_where_it_is_read(things, variable):
    names = [each for each in guidance_by_name(f"{variable}.NAME") if not hasattr(things[variable], each)]
    assert names
    for name in names:
        with pytest.raises(AttributeError) as caught:
            getattr(things[variable], name)
        said = guidance(f"{variable}.NAME", name)
        assert str(caught.value).endswith(as_sentence(said) if variable == "net" else f": {said}.")


@pytest.mark.parametrize("variable", ["run", "source"])
def test_each_name_is_answered_where_it_is_set(things, variable):
    for name in guidance_by_name(f"{variable}.NAME = ..."):
        with pytest.raises(AttributeError) as caught:
            setattr(things[variable], name, 1)
        assert str(caught.value).endswith(f"by setting it: {guidance(f'{variable}.NAME = ...', name)}.")


def test_each_name_of_the_package_is_answered():
    for name in guidance_by_name("ts.NAME").keys() - {*dir(ts)}:
        with pytest.raises(AttributeError) as caught:
            getattr(ts, name)
        assert str(caught.value).endswith(f" {foreign_name_advice(name)}")


def test_every_option_of_the_data_is_named_at_the_source():
    assert guidance_by_name("source.NAME = ...").keys() == DataKeywords.__annotations__.keys()


def test_no_row_is_left_that_nothing_asks(things):
    known = {*(f"{each}(NAME=...)" for each in ALL_CALLS), *(f"{each}.NAME" for each in HELD)}
    known |= {"phrases", "ts.NAME", "ts.NAME()", "NAME=...", "NAME(...)", "VALUE(...)", "beside an update"}
    known |= {
        "a learner given to",
        "drawn in a part",
    }  # whose rows are names of modules that take one, of functions of torch's
    assert known | {"run.NAME = ...", "source.NAME = ..."} == {*PLACES}
    for call in CALLS:
        assert (
            not guidance_by_name(f"{call}(NAME=...)").keys()
            & inspect.signature(called(things, call)).parameters.keys()
        )


def test_what_is_put_in_is_known():
    phrases = set(
        re.findall(r"^- (\w+):", TEXT.partition("## phrases")[2].partition("\n## ")[0], re.MULTILINE)
    )
    fields = set(re.findall(r"\{(\w+)(?:!r)?\}", TEXT))
    assert fields - phrases == {"name", "kind", "schedule", "rate", "by", "clip", "scale", "home"}
    assert max(map(len, TEXT.splitlines())) <= 128


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({"fp16": True}, "fp16-mixed"),
        ({"mixed_precision": "fp16"}, "fp16-mixed"),
        ({"dtype": torch.float16}, "fp16-mixed"),
        ({"amp": "float16"}, "fp16-mixed"),
        ({"mixed_precision": "bf16"}, "bf16-mixed"),
        ({"amp": True}, "bf16-mixed"),
        ({"dtype": torch.bfloat16}, "bf16-mixed"),
        ({"fp16": False}, "float32"),
        ({"mixed_precision": "no"}, "float32"),
    ],
)
@pytest.mark.parametrize("call", ["ts.Run", "run.learner"])
def test_the_precision_that_is_named_is_the_one_that_was_meant(things, call, given, mode):
    with pytest.raises(ts.OptionError) as caught:
        called(things, call)(**given)
    assert [each for each in ("fp16-mixed", "bf16-mixed", "float32") if each in str(caught.value)] == [mode]


@pytest.mark.parametrize(
    ("given", "shape"),
    [("linear", "warmup_linear"), ("cosine", "warmup_cosine"), ("constant", "without schedule=")],
)
def test_the_schedule_of_a_name_is_written(things, given, shape):
    with pytest.raises(ts.OptionError, match=shape):
        things["run"].learner(torch.nn.Linear(1, 1), torch.optim.AdamW, lr_scheduler_type=given)


MADE = re.findall(
    r"ts\.(?:Saving|EarlyStopping|EMA|ClipNorm|ClipValue|LossScale)\([^()]*\)", " ".join(TEXT.split())
)


@pytest.mark.parametrize(
    "written", sorted(each for each in {*MADE} if not re.search(r"NAME|\.\.\.|tau", each))
)
def test_what_a_row_says_to_make_can_be_made(written):
    assert eval(written, {"ts": ts}) is not None
