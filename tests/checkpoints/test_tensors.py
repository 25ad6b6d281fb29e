# SPDX-License-Identifier: Apache-2.0
"""Tensors come back bit for bit, with shape, dtype, memory order and what they shared."""

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.dtype_encoding import DTYPES
from truestep.core.errors import CheckpointError

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


@pytest.fixture(params=[False, True], ids=["at once", "in the background"])
def there_and_back(request, tmp_path):
    def run(state):
        with CheckpointStore(tmp_path, background=request.param) as store:
            store.save(1, state)
            return store.newest().load()

    return run


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_bits(dtype: str, *shape: int) -> torch.Tensor:
    count = DTYPES[dtype].element_bytes
    raw = torch.randint(0, 256, (*shape, count), dtype=torch.uint8)
    if dtype == "bool":
        raw %= 2
    return raw.view(getattr(torch, dtype)).squeeze(-1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(dtype, there_and_back):
    state = {
        "matrix": random_bits(dtype, 3, 5),
        "scalar": random_bits(dtype),
        "empty": random_bits(dtype, 0, 4),
    }
    loaded = there_and_back(state)
    for name, tensor in state.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
        assert bits(loaded[name]) == bits(tensor)


def test_memory_order_comes_back(there_and_back):
    image = torch.randn(2, 3, 4, 5)
    state = {
        "channels last": image.to(memory_format=torch.channels_last),
        "transposed": image.clone().transpose(0, 3),
        "every second": image.clone()[:, :, ::2],
        "expanded": torch.ones(1).expand(4),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
    }
    loaded = there_and_back(state)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    assert loaded["channels last"].stride() == state["channels last"].stride()
    assert loaded["transposed"].stride() == state["transposed"].stride()
    assert loaded["every second"].is_contiguous()


def test_what_was_one_tensor_is_one_tensor_again_and_written_once(there_and_back, tmp_path):
    weight = torch.nn.Parameter(torch.randn(1000))
    loaded = there_and_back({"a": {"embedding": weight}, "b": {"output": weight.detach()}})
    assert loaded["a"]["embedding"].data_ptr() == loaded["b"]["output"].data_ptr()
    assert torch.equal(loaded["a"]["embedding"], weight)
    assert [path.stat().st_size // 1000 for path in tmp_path.rglob("*.safetensors")] == [4]


def test_views_that_overlap_overlap_again(there_and_back):
    base = torch.arange(20.0)
    state = {"even": base[4:16:2], "table": base[6:18].view(3, 4).T, "apart": base[:4]}
    loaded = there_and_back(state)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    loaded["even"].fill_(-1)
    assert loaded["table"].flatten().tolist().count(-1) == 5
    assert loaded["apart"].tolist() == [0, 1, 2, 3]


def test_parts_of_one_storage_that_do_not_overlap_stay_apart(there_and_back, tmp_path):
    flat = torch.randn(10)
    there_and_back({"a": flat[:5].view(5), "b": flat[5:].view(5, 1)})
    (file,) = tmp_path.rglob("*.safetensors")
    held = {name: tuple(tensor.shape) for name, tensor in safetensors.torch.load_file(file).items()}
    assert held == {"a": (5,), "b": (5, 1)}


def test_the_same_memory_as_two_dtypes_keeps_both_values(there_and_back):
    base = torch.randn(4)
    loaded = there_and_back({"float": base, "bits": base.view(torch.int32)})
    assert torch.equal(loaded["float"].view(torch.int32), loaded["bits"])


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=3)),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_views_of_one_storage_a_state_holds_their_values_come_back(tmp_path_factory, views):
    base = torch.arange(40)
    state = {
        str(number): base.as_strided([size for size, _ in axes], [stride for _, stride in axes], offset)
        for number, (offset, axes) in enumerate(views)
    }
    with CheckpointStore(tmp_path_factory.mktemp("views")) as store:
        store.save(1, state)
        loaded = store.newest().load()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())


def test_a_file_of_weights_is_a_plain_safetensors_file(there_and_back, tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
    there_and_back({"learners": {"net": {"modules": net.state_dict(), "optimizers": [{"lr": 0.1}]}}})
    file = tmp_path / "000001-step-1" / "learners.net.modules-r0000.safetensors"
    loaded = safetensors.torch.load_file(file)
    assert {name: tuple(tensor.shape) for name, tensor in loaded.items()} == {
        name: tuple(tensor.shape) for name, tensor in net.state_dict().items()
    }
    net.load_state_dict(loaded)


def test_names_that_look_alike_stay_apart(there_and_back):
    state = {
        0: torch.tensor(0),
        "0": torch.tensor(1),
        "a/b": torch.tensor(2),
        "a": {"b": torch.tensor(3), "__metadata__": torch.tensor(4)},
        "__metadata__": torch.tensor(5),
        "..": {"x": torch.tensor(6)},
        "": {"": torch.tensor(7)},
        "ä/ö": {"ü": torch.tensor(8)},
        "a?": {"b": torch.tensor(9)},
        "a!": {"b": torch.tensor(10)},
        "manifest.json": {"b": torch.tensor(11)},
    }
    assert there_and_back(state) == state


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(2).to_sparse(), "'a/0' can't be saved: it has the layout torch.sparse_coo"),
        (torch.empty(2, device="meta"), "meta device"),
        (torch.nn.UninitializedParameter(), "has no shape yet"),
    ],
    ids=["sparse", "meta", "lazy"],
)
def test_a_tensor_without_plain_values_is_refused(tensor, message, tmp_path):
    with CheckpointStore(tmp_path) as store, pytest.raises(CheckpointError, match=message):
        store.save(1, {"a": [tensor]})


def test_a_state_of_ten_thousand_small_tensors(there_and_back):
    state = {str(number): torch.tensor(float(number)) for number in range(10_000)}
    assert there_and_back(state) == state
