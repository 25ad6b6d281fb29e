# SPDX-License-Identifier: Apache-2.0
"""CLIP of one layer each on made-up pictures of a colour and the words that name it."""

import os

import torch
from absent import bare_packages
from torch.utils.data import DataLoader, TensorDataset

bare_packages("x_clip")
from x_clip.x_clip import CLIP

torch.manual_seed(0)
options = {"extra_latent_projection": True} if os.environ["FAULTY"].endswith("e4fde45d") else {}
clip = CLIP(
    dim_text=32,
    dim_image=32,
    dim_latent=32,
    num_text_tokens=64,
    text_enc_depth=1,
    text_seq_len=8,
    text_heads=2,
    num_visual_tokens=64,
    visual_enc_depth=1,
    visual_image_size=16,
    visual_patch_size=8,
    visual_heads=2,
    **options,
)
colours = torch.rand(320, 3)
words = (colours.repeat(1, 3)[:, :8] * 63).long()
pictures = colours[:, :, None, None] + 0.1 * torch.randn(320, 3, 16, 16)
masks = torch.ones(320, 8, dtype=torch.bool)
optimizer = torch.optim.Adam(clip.parameters(), lr=1e-3)
for epoch in range(3):
    for text, image, mask in DataLoader(TensorDataset(words, pictures, masks), batch_size=16, shuffle=True):
        loss = clip(text, image, text_mask=mask, return_loss=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
