# SPDX-License-Identifier: Apache-2.0
"""Memory is freed, measured and explained, and nothing of the user's is changed."""

import gc
import json
import os
import subprocess
import sys
import types
import weakref

import pytest
from support import warm

import truestep as ts

torch = pytest.importorskip("torch")
MIB = 2**20
pytestmark = pytest.mark.usefixtures("earlier_objects_aside")


@pytest.fixture
def script():
    """A module to hold tensors in, as a user's script does."""
    made = types.ModuleType("a_script")
    sys.modules["a_script"] = made
    yield made
    del sys.modules["a_script"]


def tensor(mib):
    return torch.zeros(mib, MIB // 4)


def named(report, size):
    """Return the ways to the one storage of a size that no other test has."""
    return [one for one in report.tensors if one.storage_bytes == size * MIB]


def test_the_largest_tensors_with_what_holds_them(script):
    script.history = [None, tensor(37)]
    script.model = torch.nn.Sequential(torch.nn.Linear(3 * 1024, 3 * 1024, bias=False))
    report = ts.free_memory(largest=64)  # other tests may hold larger ones
    (history,), (weight,) = named(report, 37), named(report, 36)
    assert (history.shape, history.dtype, history.device) == ((37, MIB // 4), "float32", "cpu")
    assert "a_script.history[1]" in history.held_by
    assert "a_script.model[0].weight" in weight.held_by
    assert weight.requires_grad
    sizes = [one.storage_bytes for one in report.tensors]
    assert sizes == sorted(sizes, reverse=True)


def test_a_gradient_is_named_by_its_parameter(script):
    script.weight = torch.zeros(31, MIB // 4, requires_grad=True)
    script.weight.sum().backward()
    for _ in range(2):  # the second time Python knows the gradient from the first
        report = ts.free_memory(largest=3)
        ways = {way for one in named(report, 31) for way in one.held_by}
        assert {"a_script.weight", "a_script.weight.grad"} <= ways


def test_views_count_once(script):
    script.whole = tensor(33)
    script.part = script.whole[5:]
    (one,) = named(ts.free_memory(largest=3), 33)
    assert one.num_tensors >= 2
    assert one.shape == (33, MIB // 4)


def test_a_loss_that_keeps_its_graph_is_marked(script):
    script.total = torch.zeros(29, MIB // 4, requires_grad=True) * 2
    (marked,) = [one for one in named(ts.free_memory(largest=3), 29) if "a_script.total" in one.held_by]
    assert marked.keeps_graph


def test_garbage_in_cycles_is_freed():
    held = [tensor(41)]
    held.append(held)
    reference = weakref.ref(held[0])
    gc.disable()
    try:
        del held
        assert reference() is not None
        assert ts.free_memory().collected_objects > 0
        assert reference() is None
    finally:
        gc.enable()


def test_the_process_gives_memory_back():
    code = """
import torch, truestep as ts
held = [torch.ones(3000) for _ in range(15000)]
before = ts.free_memory().after.process_bytes
del held
print(before - ts.free_memory().after.process_bytes)
"""
    freed = int(warm.run("-c", code).stdout)
    assert freed > 100 * MIB


def test_the_last_error_is_kept_unless_told():
    sys.last_value = error = ValueError("kept")
    assert ts.free_memory().last_error_kept
    assert sys.last_value is error
    assert not ts.free_memory(forget_last_error=True).last_error_kept
    assert not hasattr(sys, "last_value")


def test_nothing_of_the_users_is_changed(script):
    script.model = torch.nn.Linear(4, 4)
    script.model(torch.ones(1, 4)).sum().backward()
    before = [parameter.grad.clone() for parameter in script.model.parameters()]
    state, mode = torch.get_rng_state(), script.model.training
    ts.free_memory()
    assert torch.equal(state, torch.get_rng_state())
    assert mode == script.model.training
    for old, parameter in zip(before, script.model.parameters(), strict=True):
        assert torch.equal(old, parameter.grad)


def test_reports_are_text_html_and_json(script):
    script.big = tensor(35)
    report = ts.free_memory(largest=2)
    assert "a_script.big" in str(report)
    assert "a_script.big" in report._repr_html_()
    document = json.loads(json.dumps(report.to_dict()))
    assert document["schema_version"] == 1
    assert document["after"]["process_bytes"] > 0


def test_without_torch_it_reports_the_process():
    code = """
import sys
sys.modules["torch"] = None
import truestep as ts
report = ts.free_memory()
with ts.leftover_memory() as left: pass
print(report.after.process_bytes > 0, report.tensors, left.num_storages)
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60) == "True () 0\n"


def test_tensors_without_storage_are_no_obstacle(script):
    script.sparse = torch.eye(3).to_sparse()
    script.meta = torch.empty(2**40, device="meta")
    script.empty = torch.empty(0)
    script.quantity = torch.nn.Buffer(torch.ones(2))
    assert all(one.storage_bytes < 2**40 for one in ts.free_memory(largest=50).tensors)


def test_a_fake_tensor_takes_no_memory():
    before = dict(os.environ)
    from torch._subclasses import FakeTensorMode

    try:
        with FakeTensorMode():
            fake = torch.ones(2**40)
        sizes = [one.storage_bytes for one in ts.free_memory().tensors]
    finally:
        os.environ.clear()  # torch sets a variable of its own
        os.environ.update(before)
    assert fake.numel() == 2**40
    assert max(sizes, default=0) < 2**30


class TestLeftover:
    def test_a_clean_block_leaves_nothing(self):
        with ts.leftover_memory() as left:
            tensor(8).sum()
        assert (left.num_storages, left.storage_bytes, left.tensors) == (0, 0, ())
        assert "left no tensor behind" in str(left)

    def test_a_forgotten_tensor_is_named_with_its_size(self, script):
        script.history = []
        with ts.leftover_memory() as left:
            for _ in range(3):
                script.history.append(tensor(40))  # above 32 MiB malloc never hands out what others gave back
        assert (left.num_storages, left.storage_bytes) == (3, 120 * MIB)
        held = sorted(way for one in left.tensors for way in one.held_by if way.startswith("a_script"))
        assert held == [f"a_script.history[{index}]" for index in range(3)]
        assert left.after.process_bytes - left.before.process_bytes > 80 * MIB

    def test_views_of_older_tensors_are_nothing_new(self, script):
        script.old = tensor(4)
        with ts.leftover_memory() as left:
            script.view = script.old[1:]
            script.old.add_(1)
        assert left.num_storages == 0

    def test_a_new_tensor_at_an_old_ones_address_is_new(self, script):
        script.box = [tensor(4)]
        address = script.box[0].data_ptr()
        with ts.leftover_memory() as left:
            for _ in range(50):
                script.box.clear()
                script.box.append(tensor(4))
                if script.box[0].data_ptr() == address:
                    break
        assert left.num_storages == 1

    def test_the_first_gradients_are_left_behind_and_the_second_are_not(self, script):
        script.model = torch.nn.Linear(64, 64)
        counts = []
        for _ in range(2):
            with ts.leftover_memory() as left:
                script.model(torch.ones(2, 64)).sum().backward()
            counts.append(left.num_storages)
        assert counts == [2, 0]

    def test_an_error_in_the_block_goes_on_and_the_report_is_complete(self, script):
        reports = []

        def fails():
            with ts.leftover_memory() as left:
                reports.append(left)
                script.kept = tensor(3)
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            fails()
        assert reports[0].num_storages == 1

    def test_the_traceback_of_an_error_in_the_block_holds_no_tensor_from_elsewhere(self):
        def fails():
            with ts.leftover_memory():
                raise ValueError("mine")

        elsewhere = tensor(2)
        reference = weakref.ref(elsewhere)
        with pytest.raises(ValueError, match="mine") as caught:
            fails()
        assert caught.value.__traceback__ is not None
        del elsewhere
        assert reference() is None

    def test_before_the_end_it_says_so(self):
        with ts.leftover_memory() as left:
            assert "has not ended" in str(left)
            assert left.after is None


def test_a_lazy_layer_that_was_never_called_is_no_obstacle():
    layer = torch.nn.LazyLinear(3)
    assert ts.free_memory().after is not None
    assert layer.has_uninitialized_params()
