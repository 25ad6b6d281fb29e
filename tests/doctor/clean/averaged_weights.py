# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout2d(0.1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.fc(self.dropout(x).mean((2, 3)))


images, labels = torch.randn(160, 1, 8, 8), torch.randint(4, (160,))
train_loader = DataLoader(
    TensorDataset(images[:128], labels[:128]), batch_size=16, shuffle=True, drop_last=True
)
val_loader = DataLoader(TensorDataset(images[128:], labels[128:]), batch_size=16)


@torch.inference_mode()
def accuracy(model):
    model.eval()
    return sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader) / 32


model = Net()
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
swa = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
swa_schedule = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
for epoch in range(4):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        ema.update_parameters(model)
    if epoch >= 2:
        swa.update_parameters(model)
        swa_schedule.step()
    else:
        schedule.step()
    print(epoch, accuracy(model), accuracy(ema))
update_bn(train_loader, swa)
print(accuracy(swa))
