# SPDX-License-Identifier: Apache-2.0
"""Codes that pass a gradient straight through have no slope on purpose; what is cut off beside them is found."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

from truestep.doctor.experiments.slopes import CUT_IN_WRITING

pytestmark = needs_forks
LOOP = """
class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z.round()
    @staticmethod
    def backward(ctx, gradient):
        return gradient

encoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
codes, decoder = nn.Parameter(0.5 * torch.randn(6, 3)), nn.Linear(3, 4)
opt = torch.optim.Adam([*encoder.parameters(), codes, *decoder.parameters()], lr=0.01)
for x, y in loader:
    z = encoder(x)
    q = codes[torch.cdist(z, codes).argmin(1)]
    extra = (q - z.detach()).square().mean() + 0.25 * (q.detach() - z).square().mean()
    soft = (z @ codes.T).softmax(1)
    hard = F.one_hot(soft.argmax(1), 6).float()
    FAULT
    CODE
    loss = F.mse_loss(decoder(out), x) + extra
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
CODES = {
    "z + (q - z).detach()": "out = z + (q - z).detach()",
    "(q - z).detach() + z": "out = (q - z).detach() + z",
    "z - (z - q).detach()": "out = z - (z - q).detach()",
    "q.detach() + z - z.detach()": "out = q.detach() + z - z.detach()",
    "z + (q - z).data": "out = z + (q - z).data",
    "z - (z - q).data": "out = z - (z - q).data",
    "q.data + z - z.data": "out = q.data + z - z.data",
    "torch.add": "out = torch.add((q - z).data, z)",
    "no_grad": "\n    with torch.no_grad(): shift = q - z\n    out = z + shift",
    "set_grad_enabled": "\n    with torch.set_grad_enabled(False): shift = q - z\n    out = z + shift",
    "set_grad_enabled, called": "torch.set_grad_enabled(False); shift = q - z; torch.set_grad_enabled(True); out = z + shift",
    "inference_mode": "\n    with torch.inference_mode(): shift = q - z\n    out = z + shift.clone()",
    "round": "out = z + (z.round() - z).detach()",
    "sign of tanh": "t = z.tanh(); out = (z.sign() - t).data + t",
    "clamp": "out = z + (z.clamp(-0.2, 0.2) - z).data",
    "a draw": "p = z.sigmoid(); out = p + (torch.bernoulli(p) - p).detach()",
    "one hot": "out = (hard - soft.detach() + soft) @ codes",
    "one hot, data": "out = (hard - soft.data + soft) @ codes",
    "gumbel_softmax": "out = F.gumbel_softmax(z @ codes.T, tau=0.7, hard=True) @ codes",
    "frozen for a moment": (
        "decoder.requires_grad_(False); extra += decoder(z).square().mean(); decoder.requires_grad_(True); out = z"
    ),
}
FAULTS = {
    "data": "extra = extra + 0.3 * sum(each.data.square().sum() for each in decoder.parameters())",
    "item": "extra = extra + 2 * F.mse_loss(decoder(z), x).item()",
    "grad without create_graph": (
        "slope, = torch.autograd.grad(decoder(z).sum().square(), z, retain_graph=True); extra = extra + slope.square().mean()"
    ),
}


def program(code, fault="pass"):
    """Return a training whose codes are made so, and the line of what is planted."""
    before, _ = LOOP.split("FAULT")
    return LOOP.replace("CODE", code).replace("FAULT", fault), before.count("\n") + 1


# one for each way to cut that is opened by code of its own
IN_EACH_RUN = (
    "z + (q - z).detach()", "z - (z - q).data", "no_grad", "set_grad_enabled", "inference_mode", "gumbel_softmax"
)  # fmt: skip


@pytest.mark.sliced(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each in IN_EACH_RUN else pytest.mark.slow) for each in CODES],
)
def test_codes_without_a_slope_are_no_finding(name):
    watch = watched(program(CODES[name])[0], ("REL011",))
    assert watch.findings == []
    # it holds where the blocks whose slopes can be measured are all behind the codes
    assert watch.experiments.outcome("REL011")[1] in (None, CUT_IN_WRITING)


def test_a_backward_written_by_hand_is_its_authors_own_word():
    watch = watched(program("out = Rounded.apply(z)")[0], ("REL011",))
    assert watch.findings == []
    assert watch.experiments.why_not_tried("REL011").startswith("the gradient goes through Rounded")


@pytest.mark.sliced(6)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "name", ["z + (q - z).detach()", "z + (q - z).data", "set_grad_enabled", "gumbel_softmax"]
)
def test_what_is_cut_off_beside_codes_is_found_at_its_line(name, fault):
    code, line = program(CODES[name], FAULTS[fault])
    (found,) = watched(code, ("REL011",)).findings
    assert found.message.endswith(f"by {fault} at <example>:{line}")


def test_a_difference_that_is_cut_off_and_takes_nothing_back_is_found():
    code, line = program("out = z", "extra = extra + 2 * (decoder(z) - x).data.square().mean()")
    (found,) = watched(code, ("REL011",)).findings
    assert found.message.endswith(f"by data at <example>:{line}")
