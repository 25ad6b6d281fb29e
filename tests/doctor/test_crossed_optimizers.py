# SPDX-License-Identifier: Apache-2.0
"""A GAN whose optimizers hold each other's weights."""

import pytest

from tests.support.told import told

WORDINGS = (
    "opt_g, opt_d = torch.optim.Adam({d}.parameters()), torch.optim.Adam({g}.parameters())",
    "optimizerD = torch.optim.Adam({g}.parameters(), lr=2e-4, betas=(0.5, 0.999))",
    "d_optimizer = torch.optim.RMSprop(params=list({g}.parameters()), lr=1e-4)",
    "optims = {{'G': torch.optim.Adam({d}.parameters()), 'D': torch.optim.Adam({g}.parameters())}}",
    "class T:\n    def __init__(self, {g}, {d}):\n        self.gen_opt = torch.optim.Adam({d}.parameters())",
    "opts = {{}}\nopts['critic'] = torch.optim.AdamW(filter(lambda p: p.requires_grad, {g}.parameters()))",
    "optG = torch.optim.Adam([{{'params': {d}.parameters(), 'lr': 1e-4}}])",
)
NAMES = (("G", "D"), ("netG", "netD"), ("generator", "discriminator"), ("gen", "critic"))
OTHERS = (
    "opt = torch.optim.Adam(discriminator.parameters())",
    "opt_g = torch.optim.Adam([*gen.parameters(), *disc.parameters()])",
    "critic_opt = torch.optim.Adam(critic.parameters()); actor_opt = torch.optim.Adam(actor.parameters())",
    "opt_ab = torch.optim.Adam(itertools.chain(G_AB.parameters(), G_BA.parameters()))",
    "gan_opt = torch.optim.Adam(generator.parameters())",
    "opt_d = torch.optim.Adam(parameters_of(G))",
    "gen_opt = torch.optim.Adam(Decoder(d_model, heads).parameters())",
)


@pytest.mark.parametrize(("g", "d"), NAMES)
@pytest.mark.parametrize("wording", WORDINGS)
def test_crossed_optimizers_are_told_and_straight_ones_are_not(wording: str, g: str, d: str) -> None:
    assert told("GRAD020", wording.format(g=g, d=d))
    assert not told("GRAD020", wording.format(g=d, d=g))


@pytest.mark.parametrize("line", OTHERS)
def test_other_optimizers_are_not_told(line: str) -> None:
    assert not told("GRAD020", line)
