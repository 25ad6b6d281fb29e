# SPDX-License-Identifier: Apache-2.0
"""DiscreteSACImpl, its three updates for each batch of made-up transitions."""

import torch
from absent import bare_packages, stand_ins
from torch.utils.data import DataLoader, TensorDataset

bare_packages("d3rlpy", "d3rlpy.algos", "d3rlpy.algos.torch", "d3rlpy.models", "d3rlpy.models.torch")
stand_ins(
    "kornia",
    "kornia.augmentation",
    "GPUtil",
    "tensorboardX",
    "gym",
    "h5py",
    "d3rlpy.algos.base",
    "d3rlpy.gpu",
)
import sys

sys.modules["d3rlpy.algos.base"].AlgoImplBase = object
from d3rlpy.algos.torch.sac_impl import DiscreteSACImpl


class NoAugmentation:
    def transform(self, x):
        return x


torch.manual_seed(0)
states = torch.randn(1600, 6)
actions = torch.randint(0, 3, (1600, 1))
rewards = (states[:, :3].gather(1, actions) > 0).float()
data = TensorDataset(
    states, actions, rewards, 0.9 * states + 0.1 * torch.randn(1600, 6), torch.zeros(1600, 1)
)
impl = DiscreteSACImpl(
    observation_shape=(6,),
    action_size=3,
    actor_learning_rate=3e-4,
    critic_learning_rate=3e-4,
    temp_learning_rate=3e-4,
    gamma=0.99,
    n_critics=2,
    bootstrap=False,
    share_encoder=False,
    initial_temperature=1.0,
    eps=1e-8,
    use_batch_norm=False,
    q_func_type="mean",
    use_gpu=False,
    scaler=None,
    augmentation=NoAugmentation(),
    n_augmentations=1,
    encoder_params={},
)
impl.build()
for epoch in range(2):
    for obs_t, act_t, rew_tp1, obs_tp1, ter_tp1 in DataLoader(data, batch_size=32, shuffle=True):
        critic_loss = impl.update_critic(
            obs_t.numpy(), act_t.numpy(), rew_tp1.numpy(), obs_tp1.numpy(), ter_tp1.numpy()
        )
        actor_loss = impl.update_actor(obs_t.numpy())
        temp_loss, temp = impl.update_temp(obs_t.numpy())
    impl.update_target()
    print(f"epoch {epoch} critic {critic_loss:.4f} actor {actor_loss:.4f} temperature {temp:.4f}")
