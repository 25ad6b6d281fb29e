# SPDX-License-Identifier: Apache-2.0
"""Causes that the pages' own examples do not show: one error, several causes, told apart by what is there."""

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.explainer.logs.explaining import explain_log

FULL = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.10 GiB is free. "
    "Including non-PyTorch memory, this process has 14.67 GiB memory in use. Of the allocated memory 13.90 GiB is "
    "allocated by PyTorch, and 310.00 MiB is reserved by PyTorch but unallocated."
)
SHARED = FULL.replace(
    "this process has 14.67", "Process 77 has 9.00 GiB memory in use. this process has 5.67"
)
TWICE = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:219, invalid usage, NCCL version 2.21.5\n"
    "    Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
)
OLD_FULL = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity; 2.04 GiB already allocated; "
    "10.81 MiB free; 2.10 GiB reserved in total by PyTorch)"
)
ON_TWO = (
    "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same"
)


def here(text):
    explanation = explain_log(text).main.explanation
    return f"{explanation.name}: {explanation.here} | {explanation.fix}"


def note_of(function, *arguments):
    with pytest.raises(Exception) as caught, ts.explain_errors():  # noqa: PT011
        function(*arguments)
    return " ".join(caught.value.__notes__[0].split())


def loading(missing=(), unexpected=(), reshaped=()):
    lines = ["RuntimeError: Error(s) in loading state_dict for Net:"]
    lines += [f"\tMissing key(s) in state_dict: {', '.join(map(quoted, missing))}. "] if missing else []
    lines += (
        [f"\tUnexpected key(s) in state_dict: {', '.join(map(quoted, unexpected))}. "] if unexpected else []
    )
    lines += [
        f"\tsize mismatch for {name}: copying a param with shape torch.Size({saved}) from checkpoint, the shape in current "
        f"model is torch.Size({wanted})."
        for name, saved, wanted in reshaped
    ]
    return "\n".join(lines)


def quoted(name):
    return f'"{name}"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (loading(["a.weight"], ["module.a.weight"]), ('begin with "module."', "removeprefix")),
        (loading(["a.weight"], ["_orig_mod.a.weight"]), ('begin with "_orig_mod."', "torch.compile")),
        (loading(["module.a.weight"], ["a.weight"]), ("wrapped here", "model.module.load_state_dict")),
        (
            loading(["a.weight", "b.weight"], ["model", "optimizer", "epoch"]),
            ("whole checkpoint", 'checkpoint["model"]'),
        ),
        (
            loading([], [], [("fc.weight", [1000, 512], [10, 512])]),
            ("(1000, 512) in the file", "1000 outputs"),
        ),
        (loading(["new.weight"], []), ("1 keys of Net are not in the file", "strict=False")),
    ],
)
def test_state_dicts(text, words):
    assert all(word in here(text) for word in words), here(text)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (FULL, ("2 GiB were asked for", "13.9 GiB")),
        (SHARED, ("other processes", "77 9.00 GiB")),
        (
            FULL.replace("310.00 MiB", "5.00 GiB").replace("13.90", "9.00"),
            ("fragmentation", "expandable_segments"),
        ),
        (OLD_FULL, ("other processes",)),
    ],
)
def test_a_full_card(message, words):
    assert all(word in here(f"torch.OutOfMemoryError: {message}") for word in words), here(message)


def test_outputs_that_are_kept_in_a_list():
    def epoch(net):
        outputs = []
        for step in range(5):
            if step == 4:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
            outputs.append(net(torch.rand(2, 3)))

    note = note_of(epoch, nn.Linear(3, 3))
    assert "`outputs` in epoch" in note
    assert "holds 4 tensors with their graphs" in note


def test_a_loss_is_kept_where_a_loop_adds_it_up_and_not_where_it_has_terms():
    def full():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    def epoch(net):
        total = 0
        for _ in range(5):
            total = total + net(torch.rand(2, 3)).mean()
        full()
        return total

    def step(net):
        for _ in range(2):
            loss = net(torch.rand(2, 3)).mean() + net.weight.sum()
            loss += net.bias.sum()
            loss = loss + net.bias.square().sum()
        full()
        return loss

    net = nn.Linear(3, 3)
    assert "`total` in epoch" in note_of(epoch, net)
    assert "with all of their graphs" not in note_of(step, net)


def test_an_evaluation_with_gradients():
    class Failing(nn.Module):
        def forward(self, features):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    net = nn.Sequential(nn.Linear(3, 3), Failing()).eval()
    assert "in evaluation mode, and yet a graph is being built" in note_of(net, torch.rand(2, 3))
    with torch.no_grad():
        assert "in evaluation mode" not in note_of(net, torch.rand(2, 3))


def test_what_holds_the_memory_where_nothing_else_is_known():
    def step(cache):
        assert cache
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    note = note_of(step, {"a secret name": torch.zeros(2**20)})
    assert "The largest tensors:" in note
    assert "secret" not in note


def test_frozen_parameters_and_gradients_switched_off():
    net = nn.Linear(3, 1).requires_grad_(False)

    def train(net):
        net(torch.rand(2, 3)).sum().backward()

    assert "all 2 are frozen" in note_of(train, net)
    with torch.no_grad():
        assert "gradients are switched off here" in note_of(train, nn.Linear(3, 1))


@pytest.mark.parametrize(
    ("outputs", "targets", "words"),
    [
        ((4, 3), torch.tensor([1, 2, 3, 1]), "subtract 1"),
        ((4, 3), torch.tensor([0, 1, -1, 0]), "ignore_index=-1"),
        ((4, 3), torch.tensor([[0], [1], [2], [0]]), "targets.squeeze(1)"),
        ((8, 3), torch.zeros(4, dtype=torch.int64), "2 rows for each row"),
        ((2, 3, 4, 4), torch.zeros(2, 1, 4, 4, dtype=torch.int64), "one axis fewer"),
    ],
)
def test_targets_of_cross_entropy(outputs, targets, words):
    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    assert words in note_of(loss, torch.zeros(outputs), targets)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "the value is None"),
        ("AttributeError: 'DataParallel' object has no attribute 'encoder'", "model.module.encoder"),
        ("AttributeError: 'Net' object has no attribute 'module'", "not wrapped"),
        ("AttributeError: 'float' object has no attribute 'backward'", "item() was called"),
        ("AttributeError: 'float' object has no attribute 'keys'", "a number of Python's"),
        ("AttributeError: 'tuple' object has no attribute 'size'", "several results"),
        ("NameError: name 'nn' is not defined", "from torch import nn"),
        ("TypeError: zeros() got an unexpected keyword argument 'names'", "named tensors are gone"),
        ("_pickle.UnpicklingError: invalid load key, '<'.", "web page"),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", "Git LFS"),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed.", "signal 9"),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error.", "shared-memory-full"),
        (ON_TWO, "the weights are not"),
        (ON_TWO.replace("cuda.Float", "Double"), "float64 meets float32"),
        (ON_TWO.replace("(torch.Float", "(torch.cuda.Half"), "float32 meets float16"),
        ("RuntimeError: expected scalar type Half but found Float", "the weights are float16"),
        ("RuntimeError: expected scalar type Long but found Float", "indices-not-integers"),
        ("RuntimeError: Found dtype Double but expected Float", "float64 meets float32"),
        (TWICE, "ranks 0 and 1 use the same card"),
        (
            "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
            "extension-not-built",
        ),
        ("ModuleNotFoundError: No module named 'cv2'", "pip install opencv-python"),
    ],
)
def test_one_line_is_enough(line, words):
    assert words in here(line), here(line)


def refused(num_bytes):
    raise RuntimeError(
        f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {num_bytes} bytes."
    )


def test_main_memory_that_filled_up_is_told_from_one_request_that_is_too_large():
    def keeps(num_bytes):
        kept = [torch.zeros(2**20, requires_grad=True) * 2 for _ in range(3)]
        refused(num_bytes * len(kept))

    def holds(num_bytes):
        table = torch.zeros(2**20)
        refused(num_bytes * table.dim())

    assert "`kept` in keeps" in note_of(keeps, 2**10)
    assert "The largest tensors: float32 (1048576,), 4 MiB, held" in note_of(holds, 2**10)
    assert "3 TiB were asked for at once" in note_of(keeps, 2**40)


def test_what_is_on_meta_is_to_be_filled_and_not_moved():
    def weights():
        with torch.device("meta"):
            net = nn.Linear(3, 2)
        net(torch.zeros(2, 3))

    def tensor():
        first, second = torch.zeros(3, device="meta"), torch.zeros(3)
        first + second

    assert "to_empty(device=device) and then load_state_dict" in note_of(weights)
    assert "Fix: tensors on meta have no values: make first on the device" in note_of(tensor)


@pytest.mark.parametrize(
    ("left", "right", "fix"),
    [
        ((2, 3), (2, 3), "transpose one: a @ b.T"),
        ((2, 3), (4, 3), "transpose the right one"),
        ((2, 3), (2, 4), "transpose the left one"),
        ((2, 3), (4, 5), "the columns of the left must be the rows of the right"),
    ],
)
def test_a_product_without_a_layer_is_mended_without_one(left, right, fix):
    def product():
        a, b = torch.zeros(left), torch.zeros(right)
        return a @ b

    note = note_of(product)
    assert fix in note
    assert f"the left is {left}, the right {right}" in note
    assert "nn.Linear(3," not in note


def test_a_vector_in_the_place_of_a_matrix_is_named():
    def product():
        a, b = torch.zeros(2, 3), torch.zeros(3)
        return torch.mm(a, b)

    assert "input-has-other-rank" in note_of(product)
    assert "mat2 of the product is no matrix: a (2, 3), b (3,)." in note_of(product)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: torch.utils.data.DataLoader([1], batchsize=3), "write batch_size=."),
        (lambda: torch.utils.data.DataLoader([1], workers=3), "write num_workers=."),
        (lambda: torch.optim.Adam([torch.zeros(1)], learning_rate=0.1), "write lr=."),
        (lambda: torch.optim.SGD([torch.zeros(1)], moment=0.1), "write momentum=."),
        (lambda: nn.Dropout(probability=0.3), "it takes p, inplace:"),
    ],
)
def test_keywords_that_stand_for_another_are_named_wherever_the_function_lives(call, says):
    assert says in note_of(call)
