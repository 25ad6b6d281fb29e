# SPDX-License-Identifier: Apache-2.0
"""Products with Jacobians and Hessians against the matrices themselves; what they leave alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts

DTYPES = st.sampled_from([torch.float32, torch.float64])


def network(seed, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4, dtype=dtype), nn.Tanh(), nn.Linear(4, 2, dtype=dtype))


@given(st.integers(1, 4), DTYPES, st.integers(0, 9))
@settings(deadline=None, max_examples=20)
def test_products_with_inputs_are_those_with_the_jacobian(batch, dtype, seed):
    net = network(seed, dtype)
    x, tangent = torch.randn(batch, 3, dtype=dtype), torch.randn(batch, 3, dtype=dtype)
    cotangent = torch.randn(batch, 2, dtype=dtype)
    matrices = ts.jacobian(net, x)
    pushed = torch.einsum("boi,bi->bo", matrices, tangent)
    pulled = torch.einsum("boi,bo->bi", matrices, cotangent)
    torch.testing.assert_close(ts.jvp(net, x, tangent=tangent), pushed)
    torch.testing.assert_close(ts.vjp(net, x, cotangent=cotangent), pulled)


@given(st.integers(1, 4), st.sampled_from(["*", "0", ["0.bias", "2.weight"]]), st.integers(0, 9))
@settings(deadline=None, max_examples=20)
def test_products_with_parameters_are_those_with_the_jacobian(batch, parameters, seed):
    net = network(seed)
    x, cotangent = torch.randn(batch, 3, dtype=torch.float64), torch.randn(batch, 2, dtype=torch.float64)
    matrices = ts.jacobian(net, x, parameters=parameters)
    tangent = {name: torch.randn_like(matrix[0, 0]) for name, matrix in matrices.items()}
    pushed = sum((matrix * tangent[name]).flatten(2).sum(2) for name, matrix in matrices.items())
    torch.testing.assert_close(ts.jvp(net, x, tangent=tangent, parameters=parameters), pushed)
    pulled = ts.vjp(net, x, cotangent=cotangent, parameters=parameters)
    assert list(pulled) == list(matrices)
    for name, matrix in matrices.items():
        expected = torch.tensordot(cotangent, matrix, dims=2)
        torch.testing.assert_close(pulled[name], expected)


@given(st.integers(1, 4), DTYPES, st.integers(0, 9))
@settings(deadline=None, max_examples=20)
def test_the_hessian_product_is_that_with_torchs_hessian(batch, dtype, seed):
    net, x = network(seed, dtype), torch.randn(batch, 3, dtype=dtype)
    loss = lambda: net(x).square().mean()
    vector = {name: torch.randn_like(p) for name, p in net.named_parameters()}
    got = ts.hvp(loss, net, vector)

    def by_values(*values):
        named = dict(zip(vector, values, strict=True))
        return torch.func.functional_call(net, named, (x,)).square().mean()

    values = tuple(p.detach() for p in net.parameters())
    _, expected = torch.autograd.functional.hvp(by_values, values, tuple(vector.values()))
    for one, other in zip(got.values(), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert not one.requires_grad


def test_a_quadratic_losss_hessian_product_is_its_matrix_times_the_vector():
    module = nn.Linear(3, 1, bias=False)
    matrix = torch.tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 4.0]])
    loss = lambda: (module.weight @ matrix @ module.weight.T).squeeze() / 2
    with torch.no_grad():
        got = ts.hvp(loss, module, {"weight": torch.tensor([[1.0, 2.0, 3.0]])})
    torch.testing.assert_close(got["weight"], torch.tensor([[4.0, 8.5, 13.0]]))
    linear = ts.hvp(module.weight.sum, module, {"weight": torch.ones(1, 3)})
    assert torch.equal(torch.zeros(1, 3), linear["weight"])


def test_an_operation_without_forward_derivative_is_pushed_through_by_two_reverse_passes():
    points, x, tangent = torch.randn(6, 2), torch.randn(3, 2), torch.randn(3, 2)
    function = lambda x: torch.cdist(x, points)
    expected = torch.einsum("boi,bi->bo", ts.jacobian(function, x), tangent)
    torch.testing.assert_close(ts.jvp(function, x, tangent=tangent), expected)


def test_several_inputs_have_a_tuple_of_tangents():
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    tangents = torch.randn(2, 3), torch.randn(2, 3)
    pushed = ts.jvp(lambda a, b: a * b, a, b, tangent=tangents)
    torch.testing.assert_close(pushed, tangents[0] * b + a * tangents[1])
    by_a, by_b = ts.vjp(lambda a, b: a * b, a, b, cotangent=torch.ones(2, 3))
    assert torch.equal(b, by_a)
    assert torch.equal(a, by_b)


def test_a_model_with_batch_statistics_is_differentiated_as_a_whole_and_left_as_it_was():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    x = torch.randn(5, 3)
    expected = torch.autograd.grad(nn.Sequential(*net)(x).sum(), net[0].weight)[0]
    net.load_state_dict(state)
    ts.jvp(net, x, tangent=x)
    got = ts.vjp(net, x, cotangent=torch.ones(5, 1), parameters="0.weight")
    ts.hvp(lambda: net(x).square().mean(), net, dict(net.named_parameters()))
    torch.testing.assert_close(got["0.weight"], expected)
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_under_autocast_they_are_those_of_full_precision(dtype):
    net, x = network(0, torch.float32), torch.randn(4, 3)
    vector = {name: torch.ones_like(p) for name, p in net.named_parameters()}
    products = lambda: [
        ts.jvp(net, x, tangent=x),
        ts.vjp(net, x, cotangent=torch.ones(4, 2)),
        *ts.hvp(lambda: net(x).square().mean(), net, vector).values(),
    ]
    expected = products()
    with torch.autocast("cpu", dtype):
        got = products()
    assert all(map(torch.equal, expected, got))


NET = nn.Linear(3, 2)
X = torch.ones(4, 3)
ALL = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
FROZEN = nn.Linear(3, 2).requires_grad_(False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ts.jvp(NET, X, tangent=torch.ones(3)),
            ts.OptionError,
            r"tangent has shape \(3,\), and input 0",
        ),
        (lambda: ts.jvp(NET, X, tangent=(X, X)), ts.OptionError, "2 tensors for 1 inputs"),
        (
            lambda: ts.jvp(NET, X, tangent=X, parameters="*"),
            ts.OptionError,
            "tangent is a dict of tensors by name",
        ),
        (lambda: ts.jvp(NET, X, tangent={"weight": X}, parameters="*"), ts.OptionError, "tangent lacks bias"),
        (
            lambda: ts.jvp(NET, X, tangent=ALL, parameters="bias"),
            ts.OptionError,
            "weight is none of the parameters: bias",
        ),
        (
            lambda: ts.vjp(NET, X, cotangent=X),
            ts.OptionError,
            r"cotangent has shape \(4, 3\), and the output",
        ),
        (lambda: ts.jvp(NET, X, tangent=None), ts.OptionError, "tangent has NoneType, and input 0"),
        (lambda: ts.jvp(NET, X, tangent=X * 1j), ts.OptionError, "tangent is torch.complex64.*real numbers"),
        (lambda: ts.jvp(NET, X, tangent=X.to("meta")), ts.OptionError, "on meta, and input 0"),
        (lambda: ts.hvp(lambda: NET(X).mean(), NET, None), ts.OptionError, "vector is a dict.*got NoneType"),
        (lambda: ts.hvp(NET(X).mean(), NET, ALL), ts.OptionError, "needs a function.*got Tensor"),
        (lambda: ts.vjp(NET, X.long(), cotangent=X), ts.LossError, "has no derivative"),
        (lambda: ts.vjp(lambda x: (x, x), X, cotangent=X), ts.LossError, "returned a tuple"),
        (lambda: ts.hvp(lambda: NET(X), NET, ALL), ts.LossError, r"a scalar loss.*got shape \(4, 2\)"),
        (lambda: ts.hvp(lambda: 3.0, NET, ALL), ts.LossError, "got float"),
        (lambda: ts.hvp(lambda: NET(X).mean().detach(), NET, ALL), ts.LossError, "call the model inside"),
        (lambda: ts.hvp(lambda: NET(X).mean(), NET, {}), ts.OptionError, "vector lacks weight, bias"),
        (lambda: ts.hvp(lambda: FROZEN(X).mean(), FROZEN, ALL), ts.OptionError, "weight, bias is frozen"),
        (lambda: ts.hvp(lambda: NET(X).mean(), torch.relu, ALL), ts.OptionError, r"ts\.hvp needs a module"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
