# SPDX-License-Identifier: Apache-2.0
"""Jacobians of each example against closed forms, torch's own and finite differences; what they leave alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext

SHAPES = st.lists(st.integers(1, 3), min_size=0, max_size=2).map(tuple)
MODES = st.sampled_from(["auto", "forward", "reverse"])
CHUNKS = st.sampled_from([None, 1, 2])


def network(inputs, outputs, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    size, num = math.prod(inputs), math.prod(outputs)
    return nn.Sequential(
        nn.Flatten() if inputs else nn.Unflatten(0, (-1, 1)),
        nn.Linear(size, 4, dtype=dtype),
        nn.Tanh(),
        nn.Linear(4, num, dtype=dtype),
        nn.Unflatten(1, outputs) if outputs else nn.Flatten(0),
    )


@given(SHAPES, SHAPES, st.integers(1, 4), MODES, CHUNKS, st.sampled_from([torch.float32, torch.float64]))
@settings(deadline=None, max_examples=40)
def test_it_is_the_jacobian_of_each_example_alone(inputs, outputs, batch, mode, chunk_size, dtype):
    net = network(inputs, outputs, dtype)
    x = torch.randn(batch, *inputs, dtype=dtype)
    alone = lambda x: net(x.unsqueeze(0)).squeeze(0)
    expected = torch.stack([torch.autograd.functional.jacobian(alone, row) for row in x])
    got = ts.jacobian(net, x, mode=mode, chunk_size=chunk_size)
    assert got.shape == (batch, *outputs, *inputs)
    torch.testing.assert_close(got.detach(), expected)


@given(SHAPES, st.integers(1, 3), MODES, st.integers(0, 9))
@settings(deadline=None, max_examples=15)
def test_it_is_that_of_finite_differences(outputs, batch, mode, seed):
    net = network((3,), outputs, seed=seed)
    x = torch.randn(batch, 3, dtype=torch.float64)
    step = 1e-6
    columns = [
        (net(x + step * move) - net(x - step * move)) / (2 * step) for move in torch.eye(3, dtype=x.dtype)
    ]
    torch.testing.assert_close(ts.jacobian(net, x, mode=mode), torch.stack(columns, -1), rtol=1e-6, atol=1e-8)


@given(SHAPES, st.integers(1, 4), MODES, CHUNKS)
@settings(deadline=None, max_examples=25)
def test_with_respect_to_parameters_it_is_the_one_of_each_example_alone(outputs, batch, mode, chunk_size):
    net = network((2,), outputs)
    x = torch.randn(batch, 2, dtype=torch.float64)
    got = ts.jacobian(net, x, parameters="*", mode=mode, chunk_size=chunk_size)
    assert list(got) == [name for name, _ in net.named_parameters()]
    for name, parameter in net.named_parameters():
        assert got[name].shape == (batch, *outputs, *parameter.shape)
        rows = []
        for row in x:
            alone = lambda w, name=name, row=row: torch.func.functional_call(net, {name: w}, (row[None],))[0]
            rows.append(torch.autograd.functional.jacobian(alone, parameter.detach()))
        torch.testing.assert_close(got[name].detach(), torch.stack(rows))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_several_inputs_have_one_jacobian_each(mode):
    a, b = torch.randn(3, 2), torch.randn(3, 4)
    weight = torch.randn(5, 2, 4)
    function = lambda a, b: torch.einsum("kij,bi,bj->bk", weight, a, b)
    by_a, by_b = ts.jacobian(function, a, b, mode=mode)
    torch.testing.assert_close(by_a, torch.einsum("kij,bj->bki", weight, b))
    torch.testing.assert_close(by_b, torch.einsum("kij,bi->bkj", weight, a))
    first, second = ts.jacobian(lambda x, y: x * y, a, a, mode=mode)
    torch.testing.assert_close(first, torch.diag_embed(a))
    torch.testing.assert_close(second, torch.diag_embed(a))


@pytest.mark.parametrize("chosen", ["1", "1.*", ["1.weight", "1.bias"]])
def test_parameters_are_chosen_by_name_and_pattern_and_inputs_may_be_integers(chosen):
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    tokens = torch.tensor([1, 4])
    got = ts.jacobian(net, tokens, parameters=chosen)
    assert list(got) == ["1.weight", "1.bias"]
    torch.testing.assert_close(got["1.bias"], torch.eye(2).expand(2, 2, 2))
    torch.testing.assert_close(got["1.weight"][:, 0, 0], net[0](tokens))


def test_a_tied_parameter_has_one_jacobian_for_all_its_uses():
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    x = torch.randn(3, 2)
    (name,) = got = ts.jacobian(net, x, parameters="*")
    square = lambda weight, row: weight @ (weight @ row)
    expected = [
        torch.autograd.functional.jacobian(lambda w, r=row: square(w, r), net[0].weight.detach()) for row in x
    ]
    assert name == "0.weight"
    torch.testing.assert_close(got[name].detach(), torch.stack(expected))


@pytest.mark.parametrize(("num_inputs", "num_outputs", "expected"), [(2, 5, 3), (5, 2, 1), (3, 3, 1)])
def test_the_smaller_side_is_taken(num_inputs, num_outputs, expected):
    """Reverse calls the function once; forward once more for each chunk of columns."""
    calls = []
    net = nn.Linear(num_inputs, num_outputs)
    ts.jacobian(lambda x: calls.append(1) or net(x), torch.randn(4, num_inputs), chunk_size=1)
    assert len(calls) == expected


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_distances_have_derivatives_in_every_mode(mode, p):
    points, x = torch.randn(6, 2, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    expected = torch.stack(
        [
            torch.autograd.functional.jacobian(lambda row: torch.cdist(row[None], points, p)[0], row)
            for row in x
        ]
    )
    torch.testing.assert_close(ts.jacobian(lambda x: torch.cdist(x, points, p), x, mode=mode), expected)


class Floor(torch.autograd.Function):
    """An operation that somebody wrote for reverse mode alone."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.floor()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_where_an_operation_has_no_forward_derivative_auto_goes_in_reverse():
    function = lambda x: Floor.apply(x).repeat(1, 3)
    expected = torch.eye(2).repeat(3, 1).expand(4, 6, 2)
    assert torch.equal(expected, ts.jacobian(function, torch.randn(4, 2)))
    with pytest.raises(ts.LossError, match=r'(jvp|forward).*Write mode="reverse"'):
        ts.jacobian(function, torch.randn(4, 2), mode="forward")


@pytest.mark.parametrize("outside", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("parameters", [None, "*"])
def test_what_is_computed_without_gradients_is_a_constant_in_both_modes(mode, outside, parameters):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            with torch.no_grad():
                scale = self.layer(x).norm(dim=-1, keepdim=True)
            return self.layer(x) * scale

    net, x = Scaled().double(), torch.randn(4, 3, dtype=torch.float64)
    with outside():
        got = ts.jacobian(net, x, mode=mode, parameters=parameters)
    scale = net.layer(x).norm(dim=-1).detach()
    eye = torch.eye(2, dtype=torch.float64)
    if parameters is None:
        expected = scale[:, None, None] * net.layer.weight
    else:
        got, expected = got["layer.weight"], torch.einsum("b,bi,oq->boqi", scale, x, eye)
    torch.testing.assert_close(got, expected.detach(), check_dtype=True)
    assert outside is torch.enable_grad or not got.requires_grad


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("parameters", [None, "*"])
def test_dropout_is_drawn_once_for_a_whole_jacobian(mode, parameters):
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Dropout(0.5), nn.Linear(1, 6, bias=False))
    nn.init.ones_(net[0].weight), nn.init.ones_(net[2].weight)
    got = ts.jacobian(net, torch.ones(50, 1), mode=mode, parameters=parameters)
    rows = (got if parameters is None else got["0.weight"]).reshape(50, 6)
    assert torch.equal(rows[:, :1].expand(50, 6), rows)  # all of an example is dropped, or nothing
    assert set(rows.flatten().tolist()) == {0.0, 2.0}


class Counting(nn.Module):
    """Writes to a buffer in every forward, and changes its input's copy in place."""

    def __init__(self):
        super().__init__()
        self.norm = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.act(self.norm(x))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("parameters", [None, "*"])
def test_a_module_is_left_as_it_was(mode, parameters):
    net = Counting()
    net(torch.ones(2, 3)).sum().backward()
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    buffers = [id(buffer) for buffer in net.buffers()]
    gradients = [p.grad.clone() for p in net.parameters()]
    ts.jacobian(net, torch.randn(2, 3), mode=mode, parameters=parameters)
    assert all(torch.equal(state[name], tensor) for name, tensor in net.state_dict().items())
    assert buffers == [id(buffer) for buffer in net.buffers()]
    assert all(map(torch.equal, gradients, [p.grad for p in net.parameters()]))
    assert all(part.training for part in net.modules())


@pytest.mark.parametrize(
    "model", [nn.LSTM(3, 2, batch_first=True), nn.TransformerEncoderLayer(3, 1, 4, 0.0, batch_first=True)]
)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_recurrent_nets_and_attention_have_jacobians(model, mode):
    function = lambda x: model(x)[0] if isinstance(model, nn.LSTM) else model(x)
    x = torch.randn(2, 4, 3)
    alone = lambda row: function(row[None])[0]
    expected = torch.stack([torch.autograd.functional.jacobian(alone, row) for row in x])
    torch.testing.assert_close(ts.jacobian(function, x, mode=mode).detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("parameters", [None, "*"])
def test_under_autocast_it_is_the_one_of_full_precision(dtype, parameters):
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    expected = ts.jacobian(net, x, parameters=parameters)
    with torch.autocast("cpu", dtype):
        assert repr(expected) == repr(ts.jacobian(net, x, parameters=parameters))
        half = ts.jacobian(net, x.to(dtype))
        assert half.dtype == torch.float32


def test_a_compiled_net_has_the_jacobian_of_its_original():
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    compiled = torch.compile(net, backend="eager")
    x = torch.randn(4, 3)
    compiled(x)
    assert torch.equal(ts.jacobian(net, x), ts.jacobian(compiled, x))


@pytest.mark.parametrize("parameters", [None, "*"])
def test_a_loss_can_be_made_of_it_and_none_without_gradients(parameters):
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Tanh(), nn.Linear(3, 1, bias=False))
    x = torch.randn(4, 2)
    got = ts.jacobian(net, x, parameters=parameters)
    (got if parameters is None else got["0.weight"]).square().sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in net.parameters())
    with torch.no_grad():
        other = ts.jacobian(net, x, parameters=parameters)
    first, second = (got, other) if parameters is None else (got["0.weight"], other["0.weight"])
    assert (torch.equal(first, second), second.requires_grad) == (True, False)


def test_a_learner_is_trained_on_its_own_jacobian_however_the_batch_is_split():
    def train(micro_batch):
        torch.manual_seed(0)
        make = lambda p: torch.optim.SGD(p, lr=0.1)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        learner = Learner(module, make, LearnerOptions(name="net"), LearnerContext(torch.device("cpu")))
        loss = lambda x: ts.jacobian(learner, x).square().sum((1, 2))
        learner.update(loss, torch.randn(6, 3), micro_batch=micro_batch)
        assert ts.jacobian(learner, torch.ones(2, 3), parameters="0.bias")["0.bias"].shape == (2, 2, 4)
        return torch.cat([p.flatten() for p in module.parameters()])

    torch.testing.assert_close(train(None), train(4), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parameters", [None, "*"])
def test_batch_normalisation_in_training_mode_is_refused_and_fine_in_evaluation(parameters):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    with pytest.raises(ts.LossError, match=r"'1' \(BatchNorm1d\).*a Jacobian of one example is not its own"):
        ts.jacobian(net, torch.randn(5, 3), parameters=parameters)
    net.eval()
    ts.jacobian(net, torch.randn(5, 3), parameters=parameters)


class Sliced(nn.Module):
    """A layer that gives a tuple, as its first entry."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.sliced(3)
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Sliced(nn.LSTM(3, 2, batch_first=True)), (4, 5, 3)),
        (Sliced(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True, proj_size=2)), (4, 5, 3)),
        (Sliced(nn.GRU(3, 2, batch_first=True)), (4, 5, 3)),
        (Sliced(nn.RNN(3, 2, batch_first=True)), (4, 5, 3)),
        (Sliced(nn.LSTMCell(3, 2)), (4, 3)),
        (nn.GRUCell(3, 2), (4, 3)),
        (nn.PReLU(), (4, 3)),
        (nn.PReLU(3), (4, 3, 2)),
        (nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 5)),
    ],
)
def test_layers_that_torch_can_not_run_for_many_examples_have_their_jacobians_by_parameters(
    layer, shape, mode
):
    layer, x = layer.double(), torch.randn(shape, dtype=torch.float64)
    buffers = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    got = ts.jacobian(layer, x, parameters="*", mode=mode)
    for name, parameter in layer.named_parameters():
        rows = []
        for row in x:
            alone = lambda value, row=row, name=name: torch.func.functional_call(
                layer, {name: value}, row[None]
            )[0]
            rows.append(torch.autograd.functional.jacobian(alone, parameter.detach()))
        layer.load_state_dict(buffers, strict=False)  # which the reference has moved
        torch.testing.assert_close(got[name].detach(), torch.stack(rows))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "mean"}, {"mode": "mean", "padding_idx": 3}])
def test_a_net_with_bags_of_embeddings_has_its_jacobians(mode, options):
    bags = nn.EmbeddingBag(5, 2, **options).double()
    tokens = torch.tensor([[0, 3, 1], [3, 3, 3], [4, 4, 2]])
    x = torch.randn(3, 2, dtype=torch.float64)
    got = ts.jacobian(lambda x: x * bags(tokens), x, mode=mode)
    torch.testing.assert_close(got, torch.diag_embed(bags(tokens)))
    table = ts.jacobian(bags, tokens, parameters="weight", mode=mode)["weight"]
    assert table.shape == (3, 2, 5, 2)
    torch.testing.assert_close(torch.einsum("bovi,vi->bo", table, bags.weight), bags(tokens))


def test_a_packed_sequence_is_refused_before_torch_reads_memory_that_is_not_there():
    layer = nn.GRU(3, 2, batch_first=True)
    packed = lambda x: nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True)
    with pytest.raises(ts.LossError, match="a packed sequence inside torch"):
        ts.jacobian(lambda x: layer(packed(x))[1][0], torch.randn(2, 4, 3))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("parameters", [None, "*"])
def test_a_layer_that_works_in_place_does_so_on_a_copy_of_the_input(mode, parameters):
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x.mul_(2))

    net, x = Doubled(), torch.randn(4, 3)
    before = x.clone()
    got = ts.jacobian(net, x, parameters=parameters, mode=mode)
    assert torch.equal(before, x)
    if parameters is None:
        torch.testing.assert_close(got, 2 * net.layer.weight.expand(4, 2, 3))
    else:
        torch.testing.assert_close(got["layer.weight"][:, 0, 0], 2 * x)


def test_a_result_that_is_written_into_a_given_tensor_is_there():
    def function(x):
        length = torch.empty_like(x)
        with torch.no_grad():
            nn.functional.normalize(x.detach(), out=length)
        return x * length

    x = torch.randn(4, 3)
    expected = torch.diag_embed(nn.functional.normalize(x))
    torch.testing.assert_close(ts.jacobian(function, x), expected)


@pytest.mark.parametrize("parameters", [None, "*"])
def test_on_the_device_meta_it_has_its_shape(parameters):
    net, x = nn.Linear(3, 2, device="meta"), torch.empty(4, 3, device="meta")
    got = ts.jacobian(net, x, parameters=parameters)
    assert (got if parameters is None else got["bias"]).shape == (
        (4, 2, 3) if parameters is None else (4, 2, 2)
    )


def test_a_data_parallel_module_has_the_jacobian_of_its_module():
    expected = ts.jacobian(NET, X, parameters="*")
    torch.testing.assert_close(expected, ts.jacobian(nn.DataParallel(NET), X, parameters="*"))


def switches():
    return (
        torch.is_grad_enabled(),
        torch._C._is_fwd_grad_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_cudnn_enabled(),
        torch._C._len_torch_function_stack(),
    )


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_switches_are_as_they_were_after_a_function_that_raises_or_leaves_gradients_off(mode):
    cell, before = nn.LSTM(3, 2), switches()

    def fails(x):
        cell(x)
        with torch.no_grad():
            raise ZeroDivisionError

    def leaves(x):
        torch.set_grad_enabled(False)
        return x * 2

    with pytest.raises(ZeroDivisionError):
        ts.jacobian(fails, X, mode=mode)
    assert before == switches()
    ts.jacobian(leaves, X, mode=mode)
    assert before == switches()


@pytest.mark.parametrize("outer", ["forward", "reverse"])
@pytest.mark.parametrize("inner", ["forward", "reverse"])
def test_a_jacobian_inside_a_jacobian_is_the_second_derivative(inner, outer):
    x = torch.randn(4, 3, dtype=torch.float64)
    second = ts.jacobian(lambda x: ts.jacobian(torch.sin, x, mode=inner).sum(2), x, mode=outer)
    torch.testing.assert_close(second, torch.diag_embed(-x.sin()))


NET = nn.Linear(3, 2)
X = torch.ones(4, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ts.jacobian(NET), ts.LossError, "no inputs"),
        (lambda: ts.jacobian(NET, X.long()), ts.LossError, r"Input 0 is torch\.int64.*parameters="),
        (lambda: ts.jacobian(NET, [1.0]), ts.LossError, "Input 0 is list"),
        (lambda: ts.jacobian(NET, torch.tensor(1.0)), ts.LossError, r"one row per example each, got \(\)"),
        (lambda: ts.jacobian(NET, X, X[:2]), ts.LossError, r"got \(4, 3\), \(2, 3\)"),
        (lambda: ts.jacobian(NET, parameters="*"), ts.LossError, "needs inputs with one row"),
        (lambda: ts.jacobian(NET, 3, parameters="*"), ts.LossError, "needs inputs with one row.*got int"),
        (lambda: ts.jacobian(lambda x: x.sum(), X), ts.LossError, r"shape \(\) for 4 examples"),
        (lambda: ts.jacobian(lambda x: x.argmax(1), X), ts.LossError, r"returned torch\.int64"),
        (lambda: ts.jacobian(lambda x: (x, x), X), ts.LossError, r"returned a tuple.*function\(x\)\[0\]"),
        (lambda: ts.jacobian(None, X), ts.OptionError, "a function or a module, got NoneType"),
        (lambda: ts.jacobian(NET, X, mode="backward"), ts.OptionError, "There are: auto, forward, reverse"),
        (lambda: ts.jacobian(NET, X, chunk_size=0), ts.OptionError, "chunk_size=0"),
        (lambda: ts.jacobian(NET, X, chunk_size=True), ts.OptionError, "chunk_size=True"),
        (lambda: ts.jacobian(NET, X, parameters=3), ts.OptionError, "parameters=3 names none"),
        (lambda: ts.jacobian(nn.ReLU(), X, parameters="*"), ts.OptionError, "There are none"),
        (
            lambda: ts.jacobian(NET, X.to_sparse()),
            ts.LossError,
            r"Input 0 is torch\.float32 \(torch\.sparse_coo\)",
        ),
        (lambda: ts.jacobian(NET, X * 1j), ts.LossError, r"Input 0 is torch\.complex64"),
        (lambda: ts.jacobian(nn.LazyLinear(2), X), ts.OptionError, "weight, bias: no shape yet"),
        (
            lambda: ts.jacobian(nn.LazyLinear(2), X, parameters="*"),
            ts.OptionError,
            "weight, bias: no shape yet",
        ),
        (lambda: ts.jacobian(lambda x: torch.cdist(x[:, :1], x), X), RuntimeError, "same number of columns"),
        (lambda: ts.jacobian(NET, X, parameters="wait"), ts.OptionError, "No parameter is called 'wait'"),
        (lambda: ts.jacobian(NET, X, parameters=[]), ts.OptionError, r"parameters=\[\] names none"),
        (lambda: ts.jacobian(torch.relu, X, parameters="*"), ts.OptionError, "needs a module, or a learner"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_torchs_flags_are_as_they_were_also_after_an_exception():
    flags = lambda: (
        torch._C._is_fwd_grad_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
    )
    before = flags()

    def fails(x):
        nn.LSTM(3, 2)(x)
        torch.set_grad_enabled(False)
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        ts.jacobian(fails, torch.randn(2, 3))
    assert before == flags()
    assert torch.is_grad_enabled()


MIXING = {
    "the notes' own": lambda x: torch.stack([x[0] ** 2 + 3 * x[1], 2 * x[0] + x[1] ** 2]),
    "a running sum": lambda x: x.cumsum(0) ** 2,
    "only the last on the first": lambda x: torch.cat([x[:-1] ** 2, x[-1:] * x[:1]]),
    "only the first on the last": lambda x: torch.cat([x[:1] * x[-1:], x[1:] ** 2]),
    "a mean over all": lambda x: x * x.mean(0),
    "a softmax over all": lambda x: x.softmax(0),
    "neighbours": lambda x: torch.cat([x[:1], x[1:] * x[:-1]]),
}


@given(st.sampled_from([*MIXING]), st.integers(2, 40), st.sampled_from([(), (3,), (2, 2)]), MODES)
@settings(deadline=None, max_examples=60)
def test_examples_that_mix_are_refused(name, batch, shape, mode):
    if "only" in name and batch > 16:  # one pair of many is not looked for
        batch = 16
    batch = 2 if "own" in name else batch
    x = torch.rand(batch, *shape, dtype=torch.float64) + 0.5
    for _ in range(2):
        with pytest.raises(ts.LossError, match=r"depend on other examples' inputs.*torch\.func\.jacrev"):
            ts.jacobian(MIXING[name], x, mode=mode)


@given(
    st.integers(1, 40),
    st.sampled_from([(), (3,), (2, 2)]),
    MODES,
    st.sampled_from([torch.float32, torch.float64]),
)
@settings(deadline=None, max_examples=40)
def test_examples_that_do_not_mix_are_never_refused(batch, shape, mode, dtype):
    x = torch.randn(batch, *shape, dtype=dtype)
    x[0] = 0  # where the root's derivative is infinite, and zero times it NaN
    functions = [
        lambda x: x.abs().sqrt().flatten(1).sum(1) if x.ndim > 1 else x.abs().sqrt(),
        lambda x: x.flatten(1).softmax(1) if x.ndim > 1 else x.exp(),
        lambda x: torch.stack([x.sin(), x.cos() ** 2], -1),
        torch.sin,
    ]
    for function in functions:
        assert len(ts.jacobian(function, x, mode=mode)) == batch
