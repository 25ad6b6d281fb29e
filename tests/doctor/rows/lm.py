# SPDX-License-Identifier: Apache-2.0
# expect:
import torch
from torch import nn

torch.manual_seed(0)
text = torch.randint(0, 9, (6000,))
tr, va = text[:5400], text[5400:]


class L(nn.Module):
    def __init__(s):
        super().__init__()
        s.e, s.o = nn.Embedding(9, 16), nn.Linear(16, 9)

    def forward(s, idx, tgt=None):
        lg = s.o(s.e(idx))
        return lg, (None if tgt is None else nn.functional.cross_entropy(lg.view(-1, 9), tgt.view(-1)))


net = L()
opt = torch.optim.AdamW(net.parameters(), 1e-2)


def batch(d, n=16, T=8):
    ix = torch.randint(len(d) - T - 1, (n,))
    return torch.stack([d[i : i + T] for i in ix]), torch.stack([d[i + 1 : i + T + 1] for i in ix])


for it in range(60):
    if it % 20 == 0:
        net.eval()
        with torch.no_grad():
            for d in (tr, va):
                print(sum(net(*batch(d))[1].item() for _ in range(20)) / 20)
        net.train()
    _, loss = net(*batch(tr))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
