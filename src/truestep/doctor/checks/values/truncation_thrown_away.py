# SPDX-License-Identifier: Apache-2.0
"""`obs, reward, done, _, info = env.step(action)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.questions import mentions_torch

_PARTS = 5  # observation, reward, terminated, truncated, info


class TruncationThrownAway(SourceCheck):
    """Of what an environment's step gives, whether the episode was cut off at its limit is thrown away.

    Why: an episode that reaches its limit goes on as if it had not: it is not reset, and its return runs into the next one's.

    Bad:
        import gymnasium
        env = gymnasium.make("CartPole-v1")
        state, _ = env.reset()
        done = False
        while not done:
            action = net(torch.as_tensor(state)).argmax().item()
            state, reward, done, _, info = env.step(action)  # here

    Good:
        import gymnasium
        env = gymnasium.make("CartPole-v1")
        state, _ = env.reset()
        done = False
        while not done:
            action = net(torch.as_tensor(state)).argmax().item()
            state, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated

    Fix: end the episode where it is terminated or truncated.
    """

    code = "VALUE039"
    words = (".step",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an unpacked step of five parts whose third is read, and whose fourth no name keeps."""
        if not module.of_program(mentions_torch):
            return
        for node in module.all(ast.Assign):
            target, call = node.targets[0], node.value
            if not (
                isinstance(target, ast.Tuple) and isinstance(call, ast.Call) and len(target.elts) == _PARTS
            ):
                continue
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
                continue
            ended, cut = (dotted(each) or "" for each in target.elts[2:4])
            if ended and cut and _is_read(module, node, ended) and not _is_read(module, node, cut):
                yield At(
                    node, f"An episode that is cut off goes on: {ended!r} alone says that it ended.", RISK
                )


def _is_read(module: SourceModule, node: ast.Assign, name: str) -> bool:
    """Tell whether a part is read in the function; what `_` takes is most often another thing."""
    reads = [each for each in module.reads(name) if module.scope(each) is module.scope(node)]
    return name != "_" and (bool(reads) or "." in name)
