# SPDX-License-Identifier: Apache-2.0
"""Weights go in and out in one line, from everywhere, all of them or none."""

import random
import traceback
from collections import OrderedDict

import pytest
import safetensors.torch
import torch
from support import warm
from torch import nn

import truestep as ts
from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.apply import apply_state
from truestep.checkpoints.dtype_encoding import CODES
from truestep.core.errors import CheckpointError
from truestep.frameworks.exact_resume_base import KeptCheckpoints
from truestep.mirror.state_sources import export_weights, load_weights, read_checkpoint

CUT_WHILE_READ = """
import os, sys, truestep as ts
from torch.utils._python_dispatch import TorchDispatchMode

class Cut(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        os.truncate(sys.argv[1], 9000)  # at the first operation on a tensor, behind the header
        return function(*args, **(kwargs or {}))

with Cut():
    try:
        ts.read_checkpoint(sys.argv[1])
    except ts.CheckpointError as error:
        print(error)
"""


def make_net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(body=nn.Linear(3, 4), norm=nn.BatchNorm1d(4), head=nn.Linear(4, 2)))


def equal(left: nn.Module, right: nn.Module) -> bool:
    pairs = zip(left.state_dict().values(), right.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Wrapper(nn.Module):
    """As DataParallel and DDP do it."""

    def __init__(self, module):
        super().__init__()
        self.module = module


@pytest.fixture
def run(tmp_path):
    """A run of two learners with two checkpoints."""
    learners = {name: {"modules": make_net(seed).state_dict()} for seed, name in enumerate(["net", "critic"])}
    with CheckpointStore(tmp_path / "run" / "checkpoints") as store:
        store.save(1, {"learners": {"net": {"modules": make_net(7).state_dict()}}})
        store.save(2, {"learners": learners, "other": torch.zeros(3)})
    return tmp_path / "run"


def test_from_a_run(run):
    net = make_net(5)
    assert not load_weights(net, run, learner="critic")
    assert equal(net, make_net(1))


def test_from_one_checkpoint_of_one_learner(run):
    net = make_net(5)
    load_weights(net, run / "checkpoints" / "000001-step-1")
    assert equal(net, make_net(7))


def test_from_a_run_of_several_learners_one_must_be_named(run):
    with pytest.raises(
        CheckpointError, match=r"has the learners net, critic: say whose, learner='net' or.* --learner net"
    ):
        load_weights(make_net(), run)
    with pytest.raises(CheckpointError, match=r"no 'crtic' in state\['learners'\]. Did you mean 'critic'"):
        load_weights(make_net(), run, learner="crtic")


def test_a_run_without_averages_says_what_keeps_some(run):
    with pytest.raises(CheckpointError, match=r"no averages of 'net'.*ema=ts\.EMA"):
        load_weights(make_net(), run, learner="net", averages=True)


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("bset", "Say by which metric"),
        ("Best", "Say by which metric"),
        ("lates", "leave it out"),
        ("lst", "leave it out"),
        ("higest accuracy", 'Did you mean "highest accuracy"'),
        ("accuracy", 'Did you mean "highest accuracy"'),
        ("000001-step-2", "Did you mean '000001-step-1'"),
        ("epoch 7", "There are: 000001-step-1"),
    ],
)
def test_a_checkpoint_of_another_name_is_answered_with_the_nearest(tmp_path, which, says):
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"learners": {"net": {"modules": make_net(1).state_dict()}}}, metrics={"accuracy": 0.5})
    with pytest.raises(CheckpointError, match=says):
        load_weights(make_net(2), tmp_path, checkpoint=which)


@pytest.mark.parametrize("name", ["ema", "name", "which", "step"])
def test_an_option_of_another_library_is_answered_with_ours(run, name):
    with pytest.raises(ts.OptionError, match=r"has no option '\w+'. Write \w+="):
        ts.load_weights(make_net(), run, **{name: 1})


def test_averages_take_the_place_of_the_weights_that_have_some(tmp_path):
    net = make_net(1)
    net.head_again = net.head  # tied
    averages = {name: torch.full_like(weight, 0.5) for name, weight in net.named_parameters()}
    assert "head_again.weight" not in averages
    with CheckpointStore(tmp_path) as store:
        store.save(1, {"learners": {"net": {"modules": net.state_dict(), "averages": averages}}})
    other = make_net(2)
    other.head_again = other.head
    load_weights(other, tmp_path, averages=True)
    assert all(weight.eq(0.5).all() for weight in other.parameters())
    assert torch.equal(other.norm.running_var, net.norm.running_var)
    with pytest.raises(CheckpointError, match="is a file, not a run"):
        load_weights(other, export_weights(tmp_path, tmp_path / "w.pt", averages=True), averages=True)


def test_weights_alone_are_there_though_another_file_is_damaged(run):
    other = run / "checkpoints" / "000002-step-2" / "state-r0000.safetensors"
    other.write_bytes(other.read_bytes()[:-1] + b"x")
    net = make_net(5)
    load_weights(net, run, learner="net")
    assert equal(net, make_net(0))


def test_damaged_weights_are_refused_and_the_module_is_as_before(run):
    folder = run / "checkpoints" / "000002-step-2"
    file = folder / "learners.net.modules-r0000.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    net = make_net(5)
    with pytest.raises(
        CheckpointError, match=r"is damaged. learners.net.modules.*does not have the checksum"
    ):
        load_weights(net, folder, learner="net")
    assert equal(net, make_net(5))
    with pytest.warns(UserWarning, match="000002-step-2 was passed over"):
        load_weights(net, run, learner="net")
    assert equal(net, make_net(7))


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt", "weights.pth"])
def test_exported_weights_are_plain_files_and_come_back(run, tmp_path, name):
    target = export_weights(run, tmp_path / name, learner="critic")
    read = safetensors.torch.load_file if name.endswith("safetensors") else torch.load
    make_net().load_state_dict(read(target))
    net = make_net(5)
    load_weights(net, target)
    assert equal(net, make_net(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", name]


def test_an_export_that_fails_leaves_the_old_file(run, tmp_path):
    with pytest.raises(CheckpointError, match=r"ends in '.zip'"):
        export_weights(run, tmp_path / "weights.zip", learner="net")
    with pytest.raises(CheckpointError, match="could not be written"):
        export_weights(run, tmp_path / "missing" / "weights.pt", learner="net")


def test_a_file_of_the_safetensors_library_is_read(tmp_path):
    tensors = {
        "half": torch.randn(3).half(),
        "bfloat16": torch.randn(2, 2).bfloat16(),
        "float8": torch.randn(4).to(torch.float8_e4m3fn),
        "flag": torch.tensor(True),
        "empty": torch.empty(0, 3),
    }
    safetensors.torch.save_file(tensors, tmp_path / "a.safetensors", metadata={"made": "elsewhere"})
    read = read_checkpoint(tmp_path / "a.safetensors")
    assert list(read) == list(safetensors.torch.load_file(tmp_path / "a.safetensors"))
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name].float(), tensor.float())


def test_every_dtype_of_the_safetensors_library_is_known():
    assert {
        code: getattr(torch, name) for code, name in CODES.items() if code in safetensors.torch._TYPES
    } == (safetensors.torch._TYPES)


def test_a_safetensors_file_that_is_cut_while_it_is_read_is_an_error_and_not_the_end_of_the_process(tmp_path):
    path = tmp_path / "a.safetensors"
    safetensors.torch.save_file({str(number): torch.zeros(10_000) for number in range(9)}, path)
    ended = warm.run("-c", CUT_WHILE_READ, path)
    assert ended.returncode == 0, ended.returncode
    assert "ends too early" in ended.stdout


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "header too small"),
        (b"\xff" * 16, "header too large"),
        (b"\x02" + b"\0" * 7 + b"[]", "invalid JSON in header"),
        (b"\x02" + b"\0" * 7 + b"{}x", "file not fully covered"),
    ],
)
def test_a_broken_safetensors_file_is_refused(tmp_path, data, message):
    (tmp_path / "a.safetensors").write_bytes(data)
    with pytest.raises(CheckpointError, match=message):
        load_weights(make_net(), tmp_path / "a.safetensors")


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict"])
def test_weights_are_found_beside_other_things(tmp_path, key):
    torch.save({"epoch": 3, key: make_net(1).state_dict(), "optimizer": {"state": {}}}, tmp_path / "c.pt")
    net = make_net(5)
    load_weights(net, tmp_path / "c.pt")
    assert equal(net, make_net(1))


def test_where_no_weights_are_found_the_error_lists_what_is_there(tmp_path):
    torch.save({"epoch": 3, "generator": make_net(1).state_dict()}, tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match=r"there is .epoch., .generator.\. Take it out by hand"):
        load_weights(make_net(), tmp_path / "c.pt")
    load_weights(make_net(), read_checkpoint(tmp_path / "c.pt")["generator"])


def test_a_whole_pickled_module_is_refused_with_the_lines_that_convert_it(tmp_path):
    torch.save(make_net(1), tmp_path / "whole.pt")
    with pytest.raises(CheckpointError, match="would run code from the file") as caught:
        load_weights(make_net(), tmp_path / "whole.pt")
    lines = [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")]
    source = "\n".join(lines).replace("'whole-weights.pt'", repr(str(tmp_path / "converted.pt")))
    exec(source)
    net = make_net(5)
    load_weights(net, tmp_path / "converted.pt")
    assert equal(net, make_net(1))


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"model": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(CheckpointError, match="would run code"):
        load_weights(make_net(), tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("data", [b"", b"not a pickle", b"PK\x03\x04rest"])
def test_garbage_is_refused(tmp_path, data):
    (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(CheckpointError):
        load_weights(make_net(), tmp_path / "a.pt")


def test_a_file_of_model_optimizer_and_amp_is_taken_whole(tmp_path):
    def make():
        net = make_net(3)
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cpu")

    net, optimizer, scaler = make()
    scaler.scale(net(torch.randn(5, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    parts = {"model": net, "optimizer": optimizer, "amp": scaler}
    torch.save({name: part.state_dict() for name, part in parts.items()}, tmp_path / "c.pt")
    net2, optimizer2, scaler2 = make()
    apply_state(read_checkpoint(tmp_path / "c.pt"), {"model": net2, "optimizer": optimizer2, "amp": scaler2})
    assert equal(net, net2)
    momentum = [state["momentum_buffer"] for state in optimizer.state_dict()["state"].values()]
    momentum2 = [state["momentum_buffer"] for state in optimizer2.state_dict()["state"].values()]
    assert all(map(torch.equal, momentum, momentum2))
    assert scaler2.state_dict() == scaler.state_dict()


def test_the_scale_that_apex_kept_goes_on(tmp_path):
    torch.save({"amp": OrderedDict(loss_scaler0={"loss_scale": 1024.0, "unskipped": 7})}, tmp_path / "c.pt")
    scaler = torch.amp.GradScaler("cpu")
    apply_state(read_checkpoint(tmp_path / "c.pt"), {"amp": scaler})
    assert (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]) == (1024.0, 7)


def test_what_wrappers_put_into_names_does_not_matter():
    plain, wrapped = make_net(1), Wrapper(make_net(2))
    load_weights(plain, wrapped.state_dict())
    assert equal(plain, make_net(2))
    load_weights(wrapped, make_net(3).state_dict())
    assert equal(wrapped.module, make_net(3))
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in make_net(4).state_dict().items()}
    load_weights(wrapped, compiled)
    assert equal(wrapped.module, make_net(4))


def test_a_submodule_that_is_called_module_keeps_its_name():
    both = nn.ModuleDict({"module": nn.Linear(1, 1), "other": nn.Linear(1, 1)})
    other = {name: tensor + 1 for name, tensor in both.state_dict().items()}
    load_weights(both, other)
    assert torch.equal(both["module"].weight, other["module.weight"])


def test_every_difference_is_listed_with_near_matches_and_nothing_is_loaded():
    net = make_net(1)
    found = make_net(2).state_dict()
    found["classifier.weight"] = found.pop("head.weight")
    found["heads.bias"] = found.pop("head.bias")
    found["body.weight"] = torch.zeros(9, 3)
    with pytest.raises(CheckpointError, match="nothing was loaded") as caught:
        load_weights(net, found)
    assert str(caught.value).splitlines()[1:6] == [
        "missing     head.weight [2, 4]; there is classifier.weight",
        "missing     head.bias [2]; there is heads.bias",
        "unexpected  classifier.weight [2, 4]",
        "unexpected  heads.bias [2]",
        "reshaped    body.weight [9, 3], expected [4, 3]",
    ]
    assert equal(net, make_net(1))


def test_what_fits_is_loaded_when_asked_and_the_rest_returned():
    net = make_net(1)
    found = make_net(2).state_dict()
    found["head.weight"] = torch.zeros(10, 4)
    del found["head.bias"]
    differences = load_weights(net, found, strict=False)
    assert [item.name for item in differences.reshaped] == ["head.weight"]
    assert [item.name for item in differences.missing] == ["head.bias"]
    assert differences.to_dict()["unexpected"] == ()
    assert torch.equal(net.body.weight, make_net(2).body.weight)
    assert torch.equal(net.head.weight, make_net(1).head.weight)
    assert str(differences).startswith("7 of 9 tensors loaded\n")
    assert str(load_weights(net, make_net(2).state_dict())) == "9 of 9 tensors loaded; no differences"


RENAMED = {
    "other words": {
        "body.weight": "fc1.w",
        "body.bias": "fc1.b",
        "head.weight": "fc2.w",
        "head.bias": "fc2.b",
    },
    "a beginning more": {"": "net.encoder."},
    "no module at all": {"body": "0", "head": "2"},
    "one of two": {"head.": "classifier."},
}


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", RENAMED)
def test_weights_under_other_names_say_how_to_rename_them(name, strict, tmp_path, monkeypatch):
    """The lines that are shown are run, and load all; what fits in part is offered only where something fits."""
    monkeypatch.chdir(tmp_path)
    found, net = make_net(2).state_dict(), make_net(1)
    for old, new in RENAMED[name].items():
        found = {
            new + key.removeprefix(old) if key.startswith(old) else key: each for key, each in found.items()
        }
    torch.save({"state_dict": found, "epoch": 3}, "old.pt")
    some_fit = bool(found.keys() & net.state_dict().keys())
    if some_fit and not strict:
        assert "of 9 tensors loaded" in str(load_weights(net, "old.pt", strict=False))
        return
    with pytest.raises(CheckpointError, match="nothing was loaded") as caught:
        load_weights(net, "old.pt", strict=strict)
    said = str(caught.value)
    assert ("strict=False" in said) is some_fit
    assert ("(0 of 9)" in said) is not some_fit
    lines = "\n".join(line.strip() for line in said.splitlines() if line.startswith("    "))
    if "ModuleDict" not in said:
        exec(lines, {"ts": ts, "module": net})
        assert equal(net, make_net(2))


def test_weights_of_another_network_are_not_renamed(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        load_weights(
            make_net(1), {"conv.weight": torch.ones(8, 3, 3, 3), "fc.bias": torch.ones(2)}, strict=False
        )
    assert "names" not in str(caught.value)
    assert "(0 of 9)" in str(caught.value)


def test_tied_weights_that_were_saved_once_are_enough():
    net = nn.ModuleDict({"embedding": nn.Embedding(5, 3), "output": nn.Linear(3, 5, bias=False)})
    net["output"].weight = net["embedding"].weight
    weight = torch.randn(5, 3)
    assert not load_weights(net, {"output.weight": weight})
    assert torch.equal(net["embedding"].weight, weight)


class Counter:
    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_a_state_is_applied_to_all_or_to_none():
    net, counter = make_net(1), Counter()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    state = {
        "counter": {"count": 5},
        "net": make_net(2).state_dict(),
        "optimizer": {"param_groups": [], "state": {}},
    }
    objects = {"counter": counter, "net": net, "optimizer": optimizer}
    with pytest.raises(CheckpointError, match="'optimizer' could not be loaded; everything is as it was"):
        apply_state(state, objects)
    assert counter.count == 0
    assert equal(net, make_net(1))
    state["optimizer"] = torch.optim.SGD(net.parameters(), lr=0.5).state_dict()
    apply_state(state, objects)
    assert counter.count == 5
    assert equal(net, make_net(2))
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_state_without_a_part_is_refused_with_what_there_is():
    with pytest.raises(CheckpointError, match=r"nothing for .net.; nothing was loaded\. Did you mean .nets."):
        apply_state({"nets": {}}, {"net": make_net()})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "not from a NoneType: write 'runs/digits'"),
        (5, "not from an int"),
        (nn.Linear(2, 2), r"not from a Linear: write source\.state_dict\(\)"),
    ],
)
def test_a_source_of_another_type_is_refused_with_what_to_write(source, message):
    with pytest.raises(CheckpointError, match=message):
        load_weights(nn.Linear(2, 2), source)


def test_an_empty_file_is_refused_with_the_reason(tmp_path):
    (tmp_path / "empty.pt").touch()
    with pytest.raises(CheckpointError, match="it is empty"):
        load_weights(nn.Linear(2, 2), tmp_path / "empty.pt")


def test_what_takes_no_state_is_refused_before_anything_is_loaded():
    net = nn.Linear(2, 2)
    before = net.weight.clone()
    with pytest.raises(CheckpointError, match=r"'step' is an int, .* state\['step'\]"):
        apply_state({"net": nn.Linear(2, 2).state_dict(), "step": 3}, {"net": net, "step": 0})
    with pytest.raises(CheckpointError, match="The state is a NoneType"):
        apply_state(None, {"net": net})
    assert torch.equal(net.weight, before)


def test_a_damaged_file_of_torch_is_told_in_plain_words(tmp_path):
    path = tmp_path / "c.pt"
    for zipped in (True, False):
        torch.save(
            {"model": make_net(1).state_dict(), "n": [1, (2.5, "x")]},
            path,
            _use_new_zipfile_serialization=zipped,
        )
        sound = path.read_bytes()
        dice = random.Random(zipped)
        for _ in range(150):
            data = bytearray(sound)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            path.write_bytes(data[: dice.choice([len(data), dice.randrange(len(data))])])
            try:
                load_weights(make_net(2), path)
            except CheckpointError as error:
                assert str(path) in str(error)  # noqa: PT017  (some damage harms nothing)


def test_a_link_of_the_users_own_to_a_safetensors_file_is_followed(tmp_path):
    safetensors.torch.save_file(make_net(1).state_dict(), tmp_path / "blob")
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blob")
    net = make_net(2)
    load_weights(net, tmp_path / "model.safetensors")
    assert equal(net, make_net(1))


@pytest.mark.parametrize("depth", ["net", "module_list"])
def test_names_with_one_prefix_say_what_held_the_module(depth, tmp_path):
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    found = {f"{depth}.{name}": value for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointError, match=f"begin with '{depth}\\.'.*ModuleDict.{{'{depth}': module}}"):
        load_weights(net, found)
    load_weights(nn.ModuleDict({depth: net}), found)
    assert torch.equal(net.weight, other.weight)
    with pytest.raises(CheckpointError) as caught:
        load_weights(nn.Linear(3, 2), {**found, "head.weight": torch.ones(1)})
    assert "ModuleDict" not in str(caught.value)


@pytest.mark.parametrize("is_dict", [True, False])
def test_the_conversion_that_is_shown_runs(is_dict, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net = nn.Linear(3, 2)
    torch.save({"state_dict": net.state_dict(), "callbacks": {Counter: 1}} if is_dict else net, "old.ckpt")
    with pytest.raises(CheckpointError) as caught:
        load_weights(nn.Linear(3, 2), "old.ckpt")
    exec("\n".join(line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")), {})
    fresh = nn.Linear(3, 2)
    load_weights(fresh, "old-weights.pt")
    assert torch.equal(fresh.weight, net.weight)


@pytest.mark.parametrize(("given", "said"), [(torch.nn.Linear, "the class Linear"), ({}, "a dict")])
def test_what_is_no_module_is_refused(given, said, tmp_path):
    with pytest.raises(
        CheckpointError, match=rf"was given {said}.*ts\.load_weights\(Net\(\.\.\.\), directory\)"
    ):
        load_weights(given, {"weight": torch.zeros(1)})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "a page of a server"),
        (b"\n <html>moved</html>", "a page of a server"),
        (b"Not Found", "no file of torch.save: it begins with b'Not Found'"),
        (b"\x00\x01\x02\x03" * 9, "no file of torch.save"),
        (b'{"message": "Not Found"}', "no file of torch.save"),
    ],
    ids=["git-lfs", "page", "moved page", "text", "garbage", "json"],
)
def test_what_is_no_file_of_weights_is_said_and_never_to_be_loaded_as_code(tmp_path, content, said):
    path = tmp_path / "weights.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as told:
        load_weights(nn.Linear(1, 1), path)
    assert said in str(told.value)
    assert "weights_only=False" not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 3\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>404</html>", "a page of a server"),
        (b"\x08\0\0\0\0\0\0\0{}", "no sound safetensors file"),
        (b"", "no sound safetensors file"),
    ],
    ids=["git-lfs", "page", "cut", "empty"],
)
def test_what_is_no_safetensors_file_is_said(tmp_path, content, said):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        load_weights(nn.Linear(1, 1), tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["model.safetensors", "adapter_model.safetensors", "pytorch_model.bin"])
def test_a_folder_that_another_library_saved_weights_in_is_told_by_its_file(tmp_path, name):
    folder = tmp_path / "checkpoint-10"
    folder.mkdir()
    saved = make_net(1)
    save = safetensors.torch.save_file if name.endswith("safetensors") else torch.save
    save(saved.state_dict(), folder / name)
    (folder / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=rf"ts\.load_weights\(module, '.*checkpoint-10/{name}'\)"):
        load_weights(make_net(), folder)
    net = make_net()
    load_weights(net, folder / name)
    assert equal(net, saved)
    for part in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        safetensors.torch.save_file(saved.state_dict(), folder / part)
    with pytest.raises(CheckpointError, match=r"Model\.from_pretrained\('.*checkpoint-10'\)"):
        load_weights(make_net(), folder)


def test_a_folder_of_exact_resume_says_how_its_framework_loads_it(tmp_path):
    kept = KeptCheckpoints(tmp_path / "exact", 2)
    file = tmp_path / "theirs.ckpt"
    torch.save(make_net().state_dict(), file)
    kept.keep(file, 3, {"pass": 0})
    kept.give_up()
    with pytest.raises(
        CheckpointError, match=r"checkpoint of ExactResume.*Net\.load_from_checkpoint\(ts\.lightning"
    ):
        load_weights(make_net(), tmp_path / "exact")
