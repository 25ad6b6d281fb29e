# SPDX-License-Identifier: Apache-2.0
"""ConditionalFlowMatcherWrapper around a VoiceBox of two layers, on made-up sounds and their phonemes."""

import os
import sys
import typing

import torch
from absent import bare_packages, stand_ins
from torch.utils.data import DataLoader, TensorDataset

bare_packages("voicebox_pytorch")
stand_ins(
    *("beartype", "torchode", "torchdyn", "torchdyn.core", "torchdiffeq", "vocos"),
    *("naturalspeech2_pytorch", "naturalspeech2_pytorch.aligner", "naturalspeech2_pytorch.utils"),
    *("naturalspeech2_pytorch.utils.tokenizer", "naturalspeech2_pytorch.naturalspeech2_pytorch"),
    *("audiolm_pytorch", "spear_tts_pytorch", "gateloop_transformer"),
    *("torchaudio", "torchaudio.transforms", "torchaudio.functional"),
)  # not installed; types are not checked
sys.modules["beartype"].beartype = lambda thing: thing
sys.modules["beartype.typing"] = typing
from voicebox_pytorch.voicebox_pytorch import ConditionalFlowMatcherWrapper, VoiceBox

torch.manual_seed(0)
fault = os.environ["FAULTY"][-8:]
old = fault in ("86a7de9d", "7fe620fe")
sizes = (
    {"num_phoneme_tokens": 16, "dim_phoneme_emb": 16} if old else {"num_cond_tokens": 16, "dim_cond_emb": 16}
)
box = VoiceBox(dim=32, depth=2, dim_head=16, heads=2, ff_mult=2, **sizes)
options = {} if old else {"duration_predictor": torch.nn.Identity()}
wrapper = ConditionalFlowMatcherWrapper(box, cond_drop_prob=0.2, **options)
phonemes = torch.randint(0, 16, (320, 12))
table = torch.randn(16, 32)
sounds = table[phonemes] + 0.1 * torch.randn(320, 12, 32)
masks = torch.arange(12) < torch.randint(6, 13, (320, 1))
loader = DataLoader(TensorDataset(sounds, phonemes, masks), batch_size=16, shuffle=True)
optimizer = torch.optim.Adam(wrapper.parameters(), lr=1e-3)
for epoch in range(3):
    for sound, phoneme, mask in loader:
        more = {"cond": sound, "mask": mask} if old else {}
        loss = wrapper(sound, phoneme_ids=phoneme, **more)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
