# SPDX-License-Identifier: Apache-2.0
"""A small training of each library, from configurations: what it makes, and the lines that it needs beside `run` and `update`.

A function behind `@recipe` makes a `Recipe`; its imports lie within it, so that one library's absence is one row's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

ROWS = 48
SEEDED = torch.Generator().manual_seed(0)
x = torch.randn(ROWS, 8, generator=SEEDED)
y = (x[:, 0] > 0).long()
tokens = torch.randint(1, 20, (ROWS, 12), generator=SEEDED)
pictures = torch.rand(ROWS, 1, 16, 16, generator=SEEDED)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def classified(net: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(net(batch[0]), batch[1], reduction="none")


@dataclass(frozen=True)
class Recipe:
    """A training; `refused` is what the run says instead of training, where it can't be done."""

    make: Callable[[], nn.Module] = layers
    loss: Callable[[Any, Any], torch.Tensor] = classified
    optimizer: Callable[[Any], torch.optim.Optimizer] = adam
    data: Any = (x, y)
    learner: dict[str, Any] = field(default_factory=dict)  # options of run.learner, of an update
    update: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of run.data
    track: Callable[[Any], dict[str, Any]] | None = None  # from the learner
    after: Callable[[dict[str, Any]], None] | None = None  # each update, with what is tracked
    config: Callable[[], Any] | None = None
    refused: str = ""
    train: Callable[[Path, int | None], nn.Module] | None = (
        None  # a trainer of the library's own, with ExactResume
    )


RECIPES: dict[str, tuple[tuple[str, ...], Callable[[], Recipe]]] = {}


def recipe(name: str, *packages: str) -> Callable[[Callable[[], Recipe]], Callable[[], Recipe]]:
    """Enter a recipe under its library's name, with the packages that it imports."""

    def enter(make: Callable[[], Recipe]) -> Callable[[], Recipe]:
        RECIPES[name] = (packages or (name,), make)
        return make

    return enter


# ---------------------------------------------------------------------- models


def small_bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
    ).train()


def next_tokens(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), rows[:, 1:], reduction="none").mean(1)


def of_bert(net: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(net(input_ids=batch[0]).logits, batch[1], reduction="none")


@recipe("transformers BERT", "transformers")
def bert() -> Recipe:
    return Recipe(small_bert, of_bert, data=(tokens, y))


@recipe("transformers GPT-2", "transformers")
def gpt2() -> Recipe:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    return Recipe(
        lambda: GPT2LMHeadModel(config).train(),
        lambda net, rows: next_tokens(net(input_ids=rows).logits, rows),
        data=tokens,
    )


@recipe("transformers T5", "transformers")
def t5() -> Recipe:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    return Recipe(
        lambda: T5ForConditionalGeneration(config).train(),
        lambda net, rows: next_tokens(net(input_ids=rows, decoder_input_ids=rows).logits, rows),
        data=tokens,
    )


@recipe("transformers Whisper", "transformers")
def whisper() -> Recipe:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=20,
        num_mel_bins=8,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=8,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        dropout=0.1,
    )
    sound = torch.randn(ROWS, 8, 16, generator=SEEDED)

    def loss(net: Any, batch: Any) -> torch.Tensor:
        return next_tokens(net(input_features=batch[0], decoder_input_ids=batch[1]).logits, batch[1])

    return Recipe(lambda: WhisperForConditionalGeneration(config).train(), loss, data=(sound, tokens))


@recipe("peft LoRA", "peft", "transformers")
def lora() -> Recipe:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, lora_dropout=0.1, target_modules=["query", "value"])
    return Recipe(lambda: get_peft_model(small_bert(), config), of_bert, data=(tokens, y))


@recipe("sentence-transformers", "sentence_transformers")
def sentences() -> Recipe:
    import tempfile

    from sentence_transformers import SentenceTransformer, models
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(18))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    pairs = [(f"w{n % 18} w{n % 7}", f"w{n % 18} w{n % 5} w3") for n in range(ROWS)]

    def make() -> Any:
        folder = tempfile.mkdtemp()
        BertModel(
            BertConfig(
                vocab_size=20,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
            )
        ).save_pretrained(folder)
        fast.save_pretrained(folder)
        first = models.Transformer(folder)
        return SentenceTransformer(modules=[first, models.Pooling(16)], device="cpu").train()

    def collate(rows: Any) -> Any:
        return [dict(fast(list(side), padding=True, return_tensors="pt")) for side in zip(*rows, strict=True)]

    def loss(net: Any, batch: Any) -> torch.Tensor:  # as MultipleNegativesRankingLoss
        one, other = (F.normalize(net(dict(side))["sentence_embedding"]) for side in batch)
        return F.cross_entropy(one @ other.T * 20, torch.arange(len(one)))

    return Recipe(make, loss, data=pairs, options={"collate": collate}, update={"decomposable": False})


def vision() -> Any:
    from timm.models import VisionTransformer

    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return VisionTransformer(**sizes, in_chans=1, num_classes=2, drop_path_rate=0.2)


@recipe("timm ViT with its Lamb and ModelEmaV3", "timm")
def timm_vision() -> Recipe:
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    return Recipe(
        vision,
        optimizer=lambda p: create_optimizer_v2(list(p), opt="lamb", lr=1e-2),
        data=(pictures, y),
        track=lambda net: {"ema": ModelEmaV3(net.module, decay=0.9), "net": net},
        after=lambda kept: kept["ema"].update(kept["net"].module),
    )


@recipe("timm's CosineLRScheduler", "timm")
def timm_schedule() -> Recipe:
    from timm.scheduler import CosineLRScheduler

    return Recipe(
        vision,
        data=(pictures, y),
        learner={"schedule": lambda o: CosineLRScheduler(o, t_initial=10)},
        refused="returned CosineLRScheduler; return a torch scheduler",
    )


def small_words() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[EOS]", *(f"w{number}" for number in range(17))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def trained_by_trl(kind: str, folder: Path, kill_at: int | None, **columns: list[str]) -> nn.Module:
    """Train with a trainer of trl's, with ExactResume among its callbacks; die at a step."""
    import os
    import signal

    import trl
    from datasets import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback

    class Kill(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sizes = {"vocab_size": 20, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    torch.manual_seed(0)
    model, before = (GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=2, eos_token_id=2)) for _ in range(2))
    exact = ts.transformers.ExactResume(folder / "exact")
    arguments = getattr(trl, f"{kind}Config")(
        str(folder / "theirs"),
        num_train_epochs=3,
        per_device_train_batch_size=8,
        learning_rate=1e-2,
        max_length=16,
        save_steps=4,
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = getattr(trl, f"{kind}Trainer")(
        model,
        args=arguments,
        train_dataset=Dataset.from_dict(columns),
        processing_class=small_words(),
        callbacks=[exact, Kill()],
        **({"ref_model": before} if kind == "DPO" else {}),
    )
    trainer.train(resume_from_checkpoint=exact.checkpoint)
    return model


@recipe("trl's SFTTrainer with ExactResume", "trl", "transformers")
def trl_sft() -> Recipe:
    text = [f"w{n % 17} w{n % 7} w{n % 5} w3" for n in range(ROWS)]
    return Recipe(train=lambda folder, kill_at: trained_by_trl("SFT", folder, kill_at, text=text))


@recipe("trl's DPOTrainer with ExactResume", "trl", "transformers")
def trl_dpo() -> Recipe:
    columns = {
        "prompt": [f"w{n % 17} w{n % 7}" for n in range(ROWS)],
        "chosen": [f" w{n % 5} w3" for n in range(ROWS)],
        "rejected": [f" w{n % 4} w2" for n in range(ROWS)],
    }
    return Recipe(train=lambda folder, kill_at: trained_by_trl("DPO", folder, kill_at, **columns))


@recipe("torch_geometric")
def graphs() -> Recipe:
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GCNConv, global_mean_pool

    class Graphs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = GCNConv(4, 8), nn.Linear(8, 2)

        def forward(self, batch: Any) -> torch.Tensor:
            hidden = self.first(batch.x, batch.edge_index).relu()
            return self.last(F.dropout(global_mean_pool(hidden, batch.batch), 0.2, self.training))

    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    rows = [Data(x=torch.randn(3, 4, generator=SEEDED), edge_index=edges, y=y[n]) for n in range(ROWS)]
    return Recipe(
        Graphs,
        lambda net, batch: F.cross_entropy(net(batch), batch.y, reduction="none"),
        data=rows,
        options={"collate": Batch.from_data_list},
    )


@recipe("diffusers with EMAModel", "diffusers")
def diffusion() -> Recipe:
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.training_utils import EMAModel

    noising = DDPMScheduler(num_train_timesteps=50)

    def make() -> Any:
        return UNet2DModel(
            sample_size=16,
            in_channels=1,
            out_channels=1,
            block_out_channels=(8, 8),
            layers_per_block=1,
            norm_num_groups=4,
            down_block_types=("DownBlock2D",) * 2,
            up_block_types=("UpBlock2D",) * 2,
        )

    def loss(net: Any, images: torch.Tensor) -> torch.Tensor:
        step, noise = (ts.rand(len(images)) * 50).long(), ts.randn(*images.shape)
        return (net(noising.add_noise(images, noise, step), step).sample - noise).square().mean((1, 2, 3))

    def tracked(net: Any) -> dict[str, Any]:
        return {"average": EMAModel(net.module.parameters(), decay=0.9), "net": net}

    return Recipe(
        make,
        loss,
        data=pictures,
        track=tracked,
        after=lambda kept: kept["average"].step(kept["net"].module.parameters()),
    )


@recipe("monai")
def monai() -> Recipe:
    from monai.losses import DiceLoss
    from monai.networks.nets import UNet

    dice = DiceLoss(sigmoid=True, reduction="none")
    return Recipe(
        lambda: UNet(
            spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), strides=(2,), dropout=0.1
        ),
        lambda net, images: dice(net(images), (images > 0.5).float()).flatten(1).mean(1),
        data=pictures,
    )


@recipe("a LightningModule", "lightning")
def lightning_module() -> Recipe:
    import lightning as L

    class Digits(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = layers()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return classified(self.net, batch)

    return Recipe(Digits, lambda net, batch: net.training_step(batch, 0))


@recipe("pytorch-metric-learning", "pytorch_metric_learning")
def metric_learning() -> Recipe:
    from pytorch_metric_learning.losses import TripletMarginLoss

    triplets = TripletMarginLoss()
    return Recipe(loss=lambda net, batch: triplets(net(batch[0]), batch[1]), update={"decomposable": False})


@recipe("x-transformers", "x_transformers")
def x_transformers() -> Recipe:
    from x_transformers import Decoder, TransformerWrapper

    return Recipe(
        lambda: TransformerWrapper(
            num_tokens=20, max_seq_len=16, attn_layers=Decoder(dim=16, depth=1, heads=2, attn_dropout=0.1)
        ),
        lambda net, rows: next_tokens(net(rows), rows),
        data=tokens,
    )


@recipe("vector-quantize-pytorch", "vector_quantize_pytorch")
def quantized() -> Recipe:
    from vector_quantize_pytorch import VectorQuantize

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes, self.head = VectorQuantize(dim=8, codebook_size=8, decay=0.8), nn.Linear(8, 2)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(self.codes(rows[:, None])[0][:, 0])

    return Recipe(Codes)


@recipe("torchdiffeq")
def odes() -> Recipe:
    from torchdiffeq import odeint

    class Flow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            ends = odeint(
                lambda _, state: self.field(state).tanh(), rows, torch.tensor([0.0, 1.0]), method="rk4"
            )
            return self.head(ends[-1])

    return Recipe(Flow)


@recipe("einops")
def einops() -> Recipe:
    from einops.layers.torch import Rearrange

    return Recipe(lambda: nn.Sequential(Rearrange("b (h w) -> b w h", h=2), nn.Flatten(), layers()))


@recipe("gpytorch exact GP", "gpytorch")
def gaussian_process() -> Recipe:
    import gpytorch

    rows, values = x[:16], x[:16, 0].sin()

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(rows, values, gpytorch.likelihoods.GaussianLikelihood())
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, inputs: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    def loss(net: Any, batch: Any) -> torch.Tensor:
        found = gpytorch.mlls.ExactMarginalLogLikelihood(net.module.likelihood, net.module)
        return -found(net(rows), values)

    return Recipe(Process, loss, update={"decomposable": False})


# ---------------------------------------------------------------------- optimizers


@recipe("lion", "lion_pytorch")
def lion() -> Recipe:
    from lion_pytorch import Lion

    return Recipe(optimizer=lambda parameters: Lion(parameters, lr=1e-3))


@recipe("prodigy", "prodigyopt")
def prodigy() -> Recipe:
    from prodigyopt import Prodigy

    return Recipe(optimizer=lambda parameters: Prodigy(parameters, lr=1.0))


@recipe("torch's Muon", "torch")
def muon() -> Recipe:
    matrices = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 2, bias=False))
    return Recipe(lambda: matrices, optimizer=lambda parameters: torch.optim.Muon(parameters, lr=1e-2))


def of_torch_optimizer(name: str, **options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    import torch_optimizer

    return lambda parameters: getattr(torch_optimizer, name)(parameters, **options)


@recipe("torch-optimizer's Lamb", "torch_optimizer")
def lamb() -> Recipe:
    return Recipe(optimizer=of_torch_optimizer("Lamb", lr=1e-2))


@recipe("torch-optimizer's RAdam", "torch_optimizer")
def radam() -> Recipe:
    return Recipe(optimizer=of_torch_optimizer("RAdam", lr=1e-2))


@recipe("torch-optimizer's Lookahead", "torch_optimizer")
def lookahead() -> Recipe:
    import torch_optimizer

    return Recipe(
        optimizer=lambda parameters: torch_optimizer.Lookahead(adam(parameters)),
        refused="its __init__ does not call super().__init__",
    )


@recipe("torch-optimizer's Adahessian", "torch_optimizer")
def adahessian() -> Recipe:
    return Recipe(optimizer=of_torch_optimizer("Adahessian", lr=1e-2), refused="create_graph")


@recipe("SAM", "torch")
def sam() -> Recipe:
    class Sharpness(torch.optim.SGD):  # as the usual file sam.py has it: two steps around the loss
        def step(self, closure: Any = None) -> Any:
            assert closure is not None, (
                "Sharpness Aware Minimization requires closure, but it was not provided"
            )
            return super().step(closure)

    return Recipe(optimizer=lambda parameters: Sharpness(parameters, lr=1e-2), refused="closure")


@recipe("heavyball")
def heavyball() -> Recipe:
    import heavyball

    heavyball.utils.compile_mode = None
    return Recipe(optimizer=lambda parameters: heavyball.AdamW(parameters, lr=1e-2))


def of_torchao(name: str) -> Callable[[Any], torch.optim.Optimizer]:
    from torchao import optim

    return lambda parameters: getattr(optim, name)(parameters, lr=1e-2)


@recipe("torchao AdamW8bit", "torchao")
def torchao_8bit() -> Recipe:
    return Recipe(lambda: nn.Linear(8, 2), optimizer=of_torchao("AdamW8bit"))


def wide(name: str) -> Recipe:
    layer = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 2))
    return Recipe(lambda: layer, optimizer=of_torchao(name), refused="which no checkpoint can hold")


@recipe("torchao AdamW8bit, weights of 4,096", "torchao")
def torchao_wide_8bit() -> Recipe:
    return wide("AdamW8bit")


@recipe("torchao AdamW4bit, weights of 4,096", "torchao")
def torchao_wide_4bit() -> Recipe:
    return wide("AdamW4bit")


# ---------------------------------------------------------------------- data and what stands around


@recipe("tensordict")
def tensordict() -> Recipe:
    from tensordict import TensorDict

    return Recipe(data=TensorDict({"x": x, "y": y}, batch_size=[ROWS]), refused="dict(data.items())")


@recipe("tensordict, as a dict", "tensordict")
def tensordict_as_dict() -> Recipe:
    from tensordict import TensorDict

    table = TensorDict({"x": x, "y": y}, batch_size=[ROWS])
    return Recipe(
        data=dict(table.items()),
        loss=lambda net, batch: F.cross_entropy(net(batch["x"]), batch["y"], reduction="none"),
    )


@recipe("albumentations")
def augmented() -> Recipe:
    import albumentations

    class Pictures(torch.utils.data.Dataset):
        def __init__(self) -> None:
            self.change = albumentations.Compose(
                [albumentations.HorizontalFlip(p=0.5), albumentations.RandomBrightnessContrast(p=0.5)]
            )

        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, index: int) -> Any:
            image = pictures[index].permute(1, 2, 0).numpy()
            return torch.tensor(self.change(image=image)["image"]).flatten(), y[index]

    return Recipe(lambda: nn.Sequential(nn.Linear(256, 2)), data=Pictures())


@recipe("omegaconf")
def configured() -> Recipe:
    from omegaconf import OmegaConf

    return Recipe(config=lambda: OmegaConf.create({"lr": 1e-2, "widths": [16, 2]}))


@recipe("torch_ema")
def averaged() -> Recipe:
    from torch_ema import ExponentialMovingAverage

    def tracked(net: Any) -> dict[str, Any]:
        return {"average": ExponentialMovingAverage(net.module.parameters(), decay=0.9)}

    return Recipe(track=tracked, after=lambda kept: kept["average"].update())


@recipe("torch.compile of the module", "torch")
def compiled() -> Recipe:
    return Recipe(
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), learner={"compile": True}
    )


@recipe("pytorch-forecasting", "pytorch_forecasting")
def forecasting() -> Recipe:
    import pandas as pd
    from pytorch_forecasting import TimeSeriesDataSet

    frame = pd.DataFrame(
        {"time": list(range(60)) * 2, "series": ["a"] * 60 + ["b"] * 60, "value": torch.randn(120).numpy()}
    )
    table = TimeSeriesDataSet(
        frame,
        time_idx="time",
        target="value",
        group_ids=["series"],
        max_encoder_length=8,
        max_prediction_length=1,
        time_varying_unknown_reals=["value"],
    )

    def loss(net: Any, batch: Any) -> torch.Tensor:
        inputs, (target, _) = batch
        return (net(inputs["encoder_cont"].flatten(1))[:, 0] - target[:, 0]).square()

    return Recipe(
        lambda: nn.Linear(8, 1),
        loss,
        data=table,
        options={"collate": table._collate_fn},  # its loader's own
    )
