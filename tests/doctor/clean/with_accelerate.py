# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
loader = DataLoader(TensorDataset(torch.randn(128, 4), torch.arange(128) % 3), batch_size=8, shuffle=True)
net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
for _epoch in range(3):
    net.train()
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = F.cross_entropy(net(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        for x, _ in loader:
            accelerator.gather_for_metrics(net(x).argmax(1))
