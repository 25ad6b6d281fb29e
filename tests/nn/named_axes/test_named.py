# SPDX-License-Identifier: Apache-2.0
"""Named tensors against plain ones, over random orders of their axes."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import truestep as ts
from truestep.nn import Named
from truestep.nn.named_axes.names import POINTWISE

SIZES = {"N": 2, "C": 3, "H": 4, "W": 5, "K": 1}
SHORT = settings(max_examples=30, deadline=None)
orders = st.tuples(st.permutations(list(SIZES)), st.integers(1, 5)).map(lambda drawn: drawn[0][: drawn[1]])


def make(names, seed=0):
    values = torch.randn(*[SIZES[name] for name in SIZES], generator=torch.Generator().manual_seed(seed))
    whole = values.double()[tuple(slice(None) if name in names else 0 for name in SIZES)]
    kept = [name for name in SIZES if name in names]
    return ts.named(whole.permute([kept.index(name) for name in names]), names)


def reference(value):
    """Return the plain tensor with all five axes in one order, those that are missing of size 1."""
    tensor = value.to_tensor([name for name in SIZES if name in value.names])
    for place, name in enumerate(SIZES):
        tensor = tensor if name in value.names else tensor.unsqueeze(place)
    return tensor


@SHORT
@given(
    orders,
    orders,
    st.sampled_from([torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.copysign, torch.ge]),
)
def test_two_operands_are_matched_by_name_whatever_their_order(left, right, function):
    a, b = make(left, 0), make(right, 1)
    result = function(a, b)
    assert set(result.names) == {*left, *right}
    assert result.sizes == {name: SIZES[name] for name in result.names}
    assert torch.equal(reference(result), function(reference(a), reference(b)))


@SHORT
@given(orders, orders)
def test_the_order_of_the_result_is_that_of_the_larger_operand(left, right):
    longest = left if len(left) >= len(right) else right
    assert (make(left) + make(right, 1)).names[: len(longest)] == tuple(longest)


@SHORT
@given(orders, orders, orders)
def test_three_operands_are_matched_too(first, second, third):
    a, b, c = make(first, 0), make(second, 1), make(third, 2)
    assert torch.equal(
        reference(torch.where(a > 0, b, c)), torch.where(reference(a) > 0, reference(b), reference(c))
    )
    assert torch.equal(reference(torch.lerp(a, b, 0.25)), torch.lerp(reference(a), reference(b), 0.25))


REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "var": torch.var,
    "std": torch.std,
    "logsumexp": torch.logsumexp,
}


@SHORT
@given(orders, st.data(), st.sampled_from(sorted(REDUCTIONS)))
def test_reductions_take_the_named_axes_and_leave_the_rest(names, data, which):
    over = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    if which in ("var", "std"):
        over = [*{*over, "W"}] if "W" in names else over
        if SIZES.keys() & set(over) == {"K"}:
            return
    x = make(names)
    result = getattr(x, which)(over)
    assert result.names == tuple(name for name in names if name not in over)
    places = [list(SIZES).index(name) for name in over]
    expected = REDUCTIONS[which](reference(x), dim=places, keepdim=True)
    torch.testing.assert_close(reference(result), expected, rtol=1e-12, atol=1e-12, equal_nan=True)


@SHORT
@given(orders, st.data())
def test_axes_come_and_go_by_name(names, data):
    x = make(names)
    name = data.draw(st.sampled_from(names))
    index = data.draw(st.integers(-SIZES[name], SIZES[name] - 1))
    assert torch.equal(x.select(name, index).tensor, x.tensor.select(names.index(name), index))
    assert x.select(name, index).names == tuple(one for one in names if one != name)
    order = data.draw(st.permutations(names))
    there = x.align_to(order)
    for written in (
        (order.split() if isinstance(order, str) else list(order),),
        tuple(order.split() if isinstance(order, str) else order),
    ):
        assert x.align_to(*written).names == there.names
        assert torch.equal(x.to_tensor(*written), there.tensor)
    assert x.align_to(there.names[0], ...).names == x.align_to(f"{there.names[0]} ...").names
    assert there.names == tuple(order)
    assert torch.equal(there.align_to(names).tensor, x.tensor)
    torch.testing.assert_close(x.softmax(name).to_tensor(order), there.softmax(name).tensor)
    assert torch.equal(reference(x.argmax(name)), reference(x).argmax(list(SIZES).index(name), keepdim=True))
    assert torch.equal(reference(x.cumsum(name)), reference(x).cumsum(list(SIZES).index(name)))
    torch.testing.assert_close(
        reference(x.log_softmax(name)), reference(x).log_softmax(list(SIZES).index(name))
    )


@SHORT
@given(orders, st.data())
def test_flatten_and_split_are_inverse_whatever_the_order(names, data):
    merged = data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1))
    x = make(names)
    flat = x.flatten(merged, "P")
    back = flat.split("P", **{name: SIZES[name] for name in merged})
    assert torch.equal(back.to_tensor(names), x.tensor)
    assert torch.equal(
        flat.to_tensor("P ...").reshape(flat.sizes["P"], -1),
        x.to_tensor([*merged, "..."]).reshape(flat.sizes["P"], -1),
    )


@SHORT
@given(orders, orders, st.data())
def test_dot_sums_over_the_named_axes_and_matches_the_others(left, right, data):
    common = [name for name in left if name in right]
    if not common:
        return
    over = data.draw(st.lists(st.sampled_from(common), unique=True, min_size=1))
    a, b = make(left, 0), make(right, 1)
    expected = (a * b).sum(over)
    torch.testing.assert_close(reference(a.dot(b, over)), reference(expected), rtol=1e-12, atol=1e-12)


@SHORT
@given(orders, orders)
def test_gradients_arrive_in_the_plain_tensors(left, right):
    a, b = make(left, 0), make(right, 1)
    x, y = a.tensor.clone().requires_grad_(), b.tensor.clone().requires_grad_()
    (torch.sin(ts.named(x, left)) * ts.named(y, right)).sum().tensor.backward()
    expected = torch.autograd.functional.jacobian(
        lambda p, q: (torch.sin(reference(ts.named(p, left))) * reference(ts.named(q, right))).sum(), (x, y)
    )
    torch.testing.assert_close((x.grad, y.grad), expected)


def test_indexing_by_name():
    x = make(["N", "C", "H", "W"])
    plain = x.tensor
    cases = [
        ({"N": 0}, plain[0], "C H W"),
        ({"N": -1, "W": slice(1, 4)}, plain[-1, :, :, 1:4], "C H W"),
        ({"C": [2, 0]}, plain[:, [2, 0]], "N C H W"),
        ({"H": torch.tensor([3, 1])}, plain[:, :, [3, 1]], "N C H W"),
        ({"C": torch.tensor([True, False, True])}, plain[:, [0, 2]], "N C H W"),
        ({"W": torch.tensor(2)}, plain[..., 2], "N C H"),
        ({"C": [1, 2], "H": [0, 3]}, plain[:, [1, 2]][:, :, [0, 3]], "N C H W"),
        ({}, plain, "N C H W"),
    ]
    for index, expected, names in cases:
        assert x[index].names == tuple(names.split())
        assert torch.equal(x[index].tensor, expected)


def test_nothing_is_copied_on_the_way_in_and_out():
    plain = torch.rand(2, 3)
    assert ts.named(plain, "N C").tensor is plain
    assert ts.named(plain, "N C").to_tensor("C N").data_ptr() == plain.data_ptr()


def test_operators_take_numbers_from_both_sides():
    plain = torch.tensor([1.0, 2.0, 4.0])
    x = ts.named(plain, "C")
    pairs = [
        (2 + x, 2 + plain), (x - 1, plain - 1), (1 - x, 1 - plain), (2 * x, 2 * plain), (x / 2, plain / 2),
        (2 / x, 2 / plain), (x**2, plain**2), (2**x, 2**plain), (-x, -plain), (abs(-x), plain), (~(x > 1), plain <= 1),
        ((x > 1) & (x < 4), (plain > 1) & (plain < 4)), ((x < 2) | (x >= 4), (plain < 2) | (plain >= 4)),
        (x == 2, plain == 2), (x != 2, plain != 2), (x <= 2, plain <= 2), (np.float32(2) * x, 2 * plain),
        (x * np.float64(2), 2 * plain), (torch.tensor(3.0) / x, 3 / plain), (x - torch.tensor(3.0), plain - 3),
    ]  # fmt: skip
    for number, (mine, expected) in enumerate(pairs):
        assert isinstance(mine, Named), number
        assert mine.names == ("C",)
        torch.testing.assert_close(mine.tensor, expected, msg=str(number))


def test_torchs_elementwise_functions_keep_the_names():
    x = ts.named(torch.tensor([[0.5, -0.25]]), "N C")
    for function in (
        torch.exp,
        torch.sigmoid,
        F.relu,
        F.gelu,
        F.silu,
        torch.zeros_like,
        torch.isnan,
        F.softplus,
    ):
        assert function(x).names == ("N", "C")
        assert torch.equal(function(x).tensor, function(x.tensor))
    assert torch.equal(torch.clamp(x, min=0, max=0.25).tensor, torch.tensor([[0.25, 0.0]]))


ELEMENTWISE = sorted({function.__name__ for function in POINTWISE})
DRAWN = {"dropout", "rand_like", "randn_like", "empty_like"}  # here only shapes can be compared


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name not in DRAWN])
def test_every_function_of_the_table_commutes_with_permuting(name):
    """What is done to a permuted tensor is the permuted outcome, so each name stays with its axis."""
    homes = (torch.Tensor,) if name.startswith("__") else (torch, F, torch.Tensor, torch._C._nn)
    function = next(getattr(home, name) for home in homes if hasattr(home, name))
    values = torch.tensor([[0.25, 0.5, 0.75], [0.125, 0.375, 0.625]], dtype=torch.float64)
    if "bitwise" in name or name in ("__and__", "__or__", "__xor__"):
        values = (values * 8).long()
    others = values.flip(1)
    candidates = [(), (0.5,), (1.0, 2.0), (others,), (others, 0.5)]
    if name == "where":
        values, candidates = values > 0.3, [(others, 2 * others)]
    for arguments in candidates:
        try:
            expected = function(values, *arguments)
        except (TypeError, RuntimeError):
            continue
        if isinstance(expected, torch.Tensor):
            flipped = [one.T if isinstance(one, torch.Tensor) else one for one in arguments]
            torch.testing.assert_close(function(values.T, *flipped), expected.T, equal_nan=True)
            return
    pytest.fail(f"{name} took none of the arguments tried")


@pytest.mark.parametrize(
    "call",
    [
        torch.sum,
        torch.max,
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x]),
        lambda x: torch.matmul(x, x),
        lambda x: F.linear(x, torch.ones(2, 3)),
        lambda x: F.cross_entropy(x, x),
        torch.sort,
        lambda x: torch.transpose(x, 0, 1),
        lambda x: torch.equal(x, x),
        torch.exp_,
        lambda x: torch.exp(x, out=torch.empty(2, 3)),
        lambda x: torch.where(x > 0),
        lambda x: torch.ones(3) + x,
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(2, 3).add_(x),
        torch.nn.Linear(3, 3),
    ],
)
def test_functions_that_go_by_position_are_refused(call):
    with pytest.raises(TypeError, match="does not know axes by name"):
        call(ts.named(torch.rand(2, 3), "N C"))


X = make(["N", "C", "H", "W"])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ts.named(torch.ones(2, 3), "N"), ValueError, "2 axes, and got 1 name: N"),
        (lambda: ts.named(torch.ones(2, 3), "N N"), ValueError, "more than once"),
        (lambda: ts.named(torch.ones(2), ["2nd"]), ValueError, "Python identifiers"),
        (lambda: ts.named([1.0], "N"), TypeError, "got list"),
        (lambda: X.sum("Q"), ValueError, r"no axis Q in \(N=2, C=3, H=4, W=5\)"),
        (lambda: X.sum(""), ValueError, "Leave the argument out"),
        (
            lambda: X + ts.named(torch.ones(4), "C"),
            ValueError,
            r"\(N=2, C=3, H=4, W=5\) and \(C=4\) do not match: C is 3 and 4",
        ),
        (lambda: X + ts.named(torch.ones(1), "C"), ValueError, r"C is 3 and 1.*select"),
        (
            lambda: ts.named(torch.ones(4), "C") * X,
            ValueError,
            r"\(C=4\) and \(N=2, C=3, H=4, W=5\) do not match",
        ),
        (lambda: X.dot(ts.named(torch.ones(4), "C"), "C"), ValueError, "C is 3 and 4"),
        (lambda: X.dot(ts.named(torch.ones(4), "K"), "C"), ValueError, r"no axis C in \(K=4\)"),
        (lambda: X.align_to("N C"), ValueError, "leaves out H, W"),
        (lambda: X.align_to("N C H W K"), ValueError, "no axis K"),
        (lambda: X.rename(C="N"), ValueError, "more than once"),
        (lambda: X.rename(Q="C"), ValueError, "no axis Q"),
        (lambda: X.flatten("H W", "N"), ValueError, "more than once"),
        (lambda: X.flatten("", "P"), ValueError, "at least one axis"),
        (lambda: X.split("W", a=2, b=2), ValueError, "product must be 5"),
        (lambda: X.split("W", a=-1, b=-1), ValueError, "product must be 5"),
        (lambda: X.split("W", a=0, b=-1), ValueError, "product must be 5"),
        (lambda: X.select("C", 3), IndexError, "out of range for the axis C"),
        (lambda: X[{"C": torch.zeros(1, 1).long()}], ValueError, "has 2 axes"),
        (lambda: X[{"C": [[0, 1], [1, 0]]}], ValueError, "has 2 axes"),
        (lambda: X[{"C": torch.tensor(True)}], ValueError, "has 0 axes"),
        (lambda: X[0], TypeError, "indexed by name"),
        (lambda: X @ X, TypeError, "dot"),
        (lambda: list(X), TypeError, "Say which"),
        (lambda: len(X), TypeError, "no one length"),
        (lambda: np.asarray(X), TypeError, "is no array, which has no names"),
        (lambda: torch.tensor(X), TypeError, "no one length"),
        (lambda: X.shape, AttributeError, r"x\.sizes"),
        (lambda: X.exp, AttributeError, r"torch\.exp\(x\)"),
        (lambda: X.backward, AttributeError, r"x\.tensor\.backward"),
        (lambda: X + "1", TypeError, "unsupported"),
    ],
)
def test_bad_input_is_answered_with_names_and_sizes(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_small_things():
    x = ts.named(torch.tensor([1.0, 2.0], requires_grad=True), "N")
    assert (x.dtype, x.device.type) == (torch.float32, "cpu")
    assert x.to(torch.float64).dtype == torch.float64
    assert not x.detach().tensor.requires_grad
    assert x.sum().item() == 3.0
    assert bool(x.sum() > 2)
    assert bool((x > 1).any())
    assert not (x > 1).all("N").item()
    assert repr(x.detach()) == "Named(N=2)\ntensor([1., 2.])"
    assert x.var("N", correction=0).item() == 0.25
    assert len({x, x}) == 1
    for again in (copy.deepcopy(x.detach()), pickle.loads(pickle.dumps(x.detach()))):
        assert (again.names, again.tensor.tolist()) == (("N",), [1.0, 2.0])


def test_a_loss_by_names_trains_in_a_run(tmp_path):
    def loss(batch):
        scores = ts.named(net(batch), "N class")
        return (-scores.log_softmax("class")).select("class", 0).tensor

    with ts.Run(tmp_path, progress=False, seed=0) as run:
        net = run.learner(torch.nn.Linear(3, 4), lambda p: torch.optim.SGD(p, lr=0.5))
        first, *_, last = [net.update(loss, torch.ones(6, 3), micro_batch=4).loss.item() for _ in range(5)]
    assert last < first


@pytest.mark.parametrize("name", ["__dict__", "__wrapped__", "version"])
def test_an_attribute_that_is_not_there_is_an_attribute_error_whatever_torch_has_of_that_name(name):
    assert not hasattr(ts.named(torch.ones(2), "N"), name)


def test_names_can_be_used_in_compiled_code():
    def loss(x):
        named = ts.named(x, "N C")
        return ((named - named.mean("N")) * named.rename(C="K").align_to("K N")).sum("N").to_tensor("C K")

    x = torch.randn(4, 3)
    assert torch.equal(loss(x), torch.compile(loss, backend="eager", fullgraph=True)(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ts.named(x.tensor, {"N", "C"}), "a set has no order"),
        (lambda x: ts.named(x.tensor, None), "one text with spaces.*got None"),
        (lambda x: x.sum(1), "one text with spaces.*got 1"),
        (lambda x: x.align_to(3), "one text with spaces.*got 3"),
        (lambda x: x.align_to(), "one text with spaces"),
        (lambda x: x.to_tensor(), "one text with spaces"),
        (lambda x: x.align_to("C", 3), "3 is no name for an axis"),
        (lambda x: x.align_to("C"), "leaves out N"),
        (lambda x: x.align_to("...", "..."), "more than once"),
        (lambda x: x.align_to(..., ...), "more than once"),
        (lambda x: x.split("C", a="3", b=1), "'3' is no size"),
        (lambda x: x.dot(x, ""), r"dot got no names.*a \* b"),
    ],
)
def test_what_is_no_name_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(ts.named(torch.ones(2, 3), "N C"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.select("N", True), "The index True of N is a bool"),
        (lambda x: x.select("N", "0"), "The index '0' of N is a str"),
        (lambda x: x[{"N": 1.0}], r"The index 1\.0 of N is a float"),
        (lambda x: x[{"N": None}], "The index None of N"),
        (lambda x: x.dot(x.tensor, "N"), "dot sums over axes by name, and got a Tensor"),
    ],
)
def test_what_is_no_index_and_no_named_tensor_is_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call(ts.named(torch.ones(2, 3), "N C"))


def test_a_tuple_of_indices_keeps_the_axis_as_a_list_does():
    x = ts.named(torch.arange(6).reshape(2, 3), "N C")
    assert x[{"C": (2, 0)}].sizes == x[{"C": [2, 0]}].sizes == {"N": 2, "C": 2}
