# SPDX-License-Identifier: Apache-2.0
"""A stream of the form that libraries give, with as much of a state as is asked for."""

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info


class Buffered(IterableDataset):
    """Shuffles in a buffer that its state leaves out, as `datasets` does: `load_state_dict` goes on behind what was read."""

    def __init__(self, size, buffer, keeps=()):
        self.size, self.buffer, self.keeps = size, buffer, keeps
        self.epoch, self.at, self.held, self.starts_at = 0, 0, [], None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def part(self):
        info = get_worker_info()
        return range(self.size)[info.id :: info.num_workers] if info else range(self.size)

    def __iter__(self):
        saved, self.starts_at = self.starts_at or {}, None
        draw = np.random.default_rng([7, self.epoch])
        if "draw" in saved:
            draw.bit_generator.state = saved["draw"]
        self.draw, self.held, self.at = draw, [*saved.get("held", [])], saved.get("at", 0)
        self.drained = saved.get("drained", False)
        for number in self.part()[self.at :]:
            self.at += 1
            if len(self.held) < self.buffer:
                self.held.append(number)
                continue
            place = int(draw.integers(self.buffer))
            given, self.held[place] = self.held[place], number
            yield given
        if not self.drained:
            draw.shuffle(self.held)
            self.drained = True
        while self.held:
            yield self.held.pop()

    def state_dict(self):
        state = {"at": self.at}
        if "held" in self.keeps:
            state["held"] = self.held
        if "draw" in self.keeps:
            state["drained"] = self.drained
            state["draw"] = {
                name: {key: int(part) for key, part in value.items()} if isinstance(value, dict) else value
                for name, value in self.draw.bit_generator.state.items()
            }
        return state

    def load_state_dict(self, state):
        self.starts_at = state
