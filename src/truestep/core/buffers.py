# SPDX-License-Identifier: Apache-2.0
"""Buffers of modules: where they are, and putting them back as they were."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from truestep.core.tensor_bytes import tensor_version
from truestep.core.user_frames import warn_user

Place = tuple[nn.Module, str]

# Copies of buffers that were never seen to move take so much at most; a larger one is copied from its first move on.
MOST_UNMOVED_BYTES = 1024 * 2**20

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def buffer_places(module: nn.Module) -> list[Place]:
    """Return where the buffers of `module` and its parts are, or may come to be."""
    # a scripted module gives its names by keys() alone
    return [(part, name) for part in module.modules() for name in part._buffers.keys()]  # noqa: SIM118


def spectral_norm_buffers(module: nn.Module) -> list[Place]:
    """Return where the power-iteration vectors of spectral norms are (today's parametrization and the old hook)."""
    return [(part, name) for part, name in buffer_places(module) if _is_spectral(part, name)]


def _is_spectral(part: nn.Module, name: str) -> bool:
    if type(part).__name__ == "_SpectralNorm" and name in ("_u", "_v"):
        return True
    hooks: list[Any] = [
        hook for hook in part._forward_pre_hooks.values() if type(hook).__name__ == "SpectralNorm"
    ]
    return any(name in (f"{hook.name}_u", f"{hook.name}_v") for hook in hooks)


def _bypasses_version_counter(part: nn.Module, name: str) -> bool:
    """Whether torch writes to it past its version, which counts the writes to a tensor."""
    is_norm = isinstance(part, nn.modules.batchnorm._NormBase) and name in _STATISTICS
    return is_norm or _is_spectral(part, name)


class BufferSnapshot:
    """The buffers at given places, copied, to be put back."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._kept = [
            (module, name, buffer, buffer.clone())
            for module, name in places
            if (buffer := module._buffers[name]) is not None
        ]

    def restore(self) -> None:
        """Put every buffer back. A buffer's version says nothing: batch normalisation writes past it."""
        with torch.no_grad():
            if self._kept:
                torch._foreach_copy_([kept[2] for kept in self._kept], [kept[3] for kept in self._kept])
            for module, name, buffer, _ in self._kept:
                # not `setattr`: a module may have a property of that name, and torch checks what is assigned
                if module._buffers[name] is not buffer:
                    module._buffers[name] = buffer


class _BufferEntry:
    """One buffer as it was kept: the tensor, its version, and a copy of its values where there is one."""

    __slots__ = ("buffer", "copy", "home", "is_kept", "is_uncounted", "name", "version")

    def __init__(self, home: dict[str, Tensor | None], name: str, *, is_uncounted: bool) -> None:
        self.home, self.name, self.is_uncounted = home, name, is_uncounted
        self.buffer: Tensor | None = None
        self.copy: Tensor | None = None
        self.version = -1
        self.is_kept = False  # known from an earlier update

    def moved(self) -> bool:
        """Whether it is another tensor now, was written to, or may have been."""
        now = self.home.get(self.name)
        if now is not self.buffer:
            return True
        return self.version >= 0 and (self.is_uncounted or now._version != self.version)  # type: ignore[union-attr]

    def differs(self) -> bool:
        """Whether its values are not those that were kept."""
        buffer, copy = self.buffer, self.copy
        return buffer is not None and copy is not None and not torch.equal(buffer, copy)


class MovingBufferSnapshot:
    """A module's buffers as they were before an update, to be put back where it is not applied, or is another learner's.

    What was not written to since it was kept is not copied again. Torch counts the writes to a tensor, except a normalisation's
    and those through `.data`: the first are copied each time, the second from when they are seen, by comparing all values in the
    first update and, on a CPU, in the second, fourth, eighth and so on.
    """

    def __init__(self, module: nn.Module, others: Sequence["MovingBufferSnapshot"] = ()) -> None:
        self._module = module
        self._others = others  # a buffer that one of them has stays theirs
        self._entries: list[_BufferEntry] = []
        self._num_kept = 0
        self._compares = False
        self.find()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def holds(self, place: Place) -> bool:
        """Whether the buffer at this place is kept here."""
        part, name = place
        return any(entry.home is part._buffers and entry.name == name for entry in self._entries)

    def find(self) -> None:
        """Look where buffers are now; those that were known stay as they were kept."""
        taken = {(id(entry.home), entry.name) for other in self._others for entry in other._entries}
        known = {(id(entry.home), entry.name): entry for entry in self._entries}
        self._entries = [
            # by the dict that holds them, which lives as long as its module; a buffer is often assigned anew
            known.get((id(part._buffers), name))
            or _BufferEntry(part._buffers, name, is_uncounted=_bypasses_version_counter(part, name))
            for part, name in buffer_places(self._module)
            if (id(part._buffers), name) not in taken
        ]

    def keep(self) -> None:
        """Remember what is there now."""
        grad_mode = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # torch.no_grad() costs three microseconds more, before each update
        try:
            self._copy_current_buffers()
        finally:
            torch._C._set_grad_enabled(grad_mode)

    def _copy_current_buffers(self) -> None:
        # Powers of two have one bit: what is compared over a whole training stays a logarithm of its updates.
        number = self._num_kept = self._num_kept + 1
        compared, self._compares = (
            self._compares,
            number & (number - 1) == 0 and self._can_compare_without_wait(),
        )
        if compared or self._compares:
            self._mark_unversioned_buffers()
        if self._compares:
            self.find()
        moved = [entry for entry in self._entries if entry.moved()]
        if moved:
            _copy_buffers(moved, MOST_UNMOVED_BYTES)

    def _can_compare_without_wait(self) -> bool:
        """Whether comparing values waits for nothing; the first update may wait."""
        return self._num_kept == 1 or all(
            entry.buffer is None or entry.buffer.device.type == "cpu" for entry in self._entries
        )

    def _mark_unversioned_buffers(self) -> None:
        for entry in self._entries:
            if not entry.moved() and entry.differs():
                entry.is_uncounted = True

    def _changed_buffers(self) -> list[_BufferEntry]:
        if self._compares:
            self._mark_unversioned_buffers()
        return [entry for entry in self._entries if entry.moved()]

    @torch.no_grad()
    def restore(self) -> None:
        """Put back what was kept, its version too: a graph made before then finds what it saved."""
        moved = self._changed_buffers()
        _write_copies_back([entry for entry in moved if entry.copy is not None])
        for entry in moved:
            if entry.home.get(entry.name) is not entry.buffer:
                entry.home[entry.name] = entry.buffer
            elif entry.moved() and not entry.is_uncounted:
                _warn_of_large_buffer(entry)

    @torch.no_grad()
    def restore_where(self, flag: Tensor) -> None:
        """Put back what was kept if `flag`, which stays on the device, is set."""
        in_place: dict[tuple[torch.dtype, torch.device], list[_BufferEntry]] = {}
        for entry in self._changed_buffers():
            now, copy = entry.home.get(entry.name), entry.copy
            if now is entry.buffer and now is not None and copy is not None:
                in_place.setdefault((now.dtype, now.device), []).append(entry)
            elif now is not None and copy is not None and _has_same_metadata(now, copy):
                # Not written into: it may be a tensor of the batch.
                entry.home[entry.name] = torch.where(flag.bool(), copy, now)
            elif now is not entry.buffer and bool(flag):  # of another size: only the host can decide
                _write_copies_back([entry] if copy is not None else [])
                entry.home[entry.name] = entry.buffer
        for entries in in_place.values():
            _write_copies_back_where(flag, entries)


def _has_same_metadata(first: Tensor, second: Tensor) -> bool:
    return (first.shape, first.dtype, first.device) == (second.shape, second.dtype, second.device)


def _copy_buffers(entries: list[_BufferEntry], most_unmoved_bytes: int) -> None:
    """Keep these buffers: into the memory of their copies where it fits, the small ones first where nothing is known of them."""
    buffers, copies = [], []
    new = []
    for entry in entries:
        before, now = entry.buffer, entry.home.get(entry.name)
        entry.buffer, entry.version = now, -1 if now is None else tensor_version(now)
        if now is None or entry.version < 0:
            entry.copy = None
        elif entry.copy is not None and (
            now.shape == entry.copy.shape if now is before else _has_same_metadata(now, entry.copy)
        ):
            buffers.append(now)
            copies.append(entry.copy)
        else:
            new.append((now, entry))
    if buffers:
        torch._foreach_copy_(copies, buffers)
    if not new:
        return
    for buffer, entry in sorted(new, key=lambda each: each[0].nbytes):
        if not entry.is_kept and not entry.is_uncounted:
            most_unmoved_bytes -= buffer.nbytes
        entry.copy = (
            buffer.clone() if most_unmoved_bytes >= 0 or entry.is_kept or entry.is_uncounted else None
        )
        entry.is_kept = True


def _write_copies_back(entries: list[_BufferEntry]) -> None:
    """Write the copies back into their buffers, past the versions."""
    if not entries:
        return
    buffers = tuple(entry.buffer for entry in entries if entry.buffer is not None)
    torch._foreach_copy_(buffers, [entry.copy for entry in entries if entry.copy is not None])
    # torch refuses a backward whose saved tensors have another version, and the values are those that were saved.
    torch._C._autograd._unsafe_set_version_counter(buffers, tuple(entry.version for entry in entries))


def _write_copies_back_where(flag: Tensor, entries: list[_BufferEntry]) -> None:
    """Write the copies of one type back if the flag is set, all of them in a few kernels."""
    buffers = tuple(entry.buffer for entry in entries if entry.buffer is not None)
    kept = torch.cat([entry.copy.reshape(-1) for entry in entries if entry.copy is not None])
    # `where` and not arithmetic: what an overflow left may be NaN, and NaN times zero is NaN.
    merged = torch.where(flag.bool(), kept, torch.cat([buffer.reshape(-1) for buffer in buffers]))
    parts = torch.split(merged, [buffer.numel() for buffer in buffers])
    with _unsafe_preserve_version_counter(buffers):
        torch._foreach_copy_(buffers, [part.view(b.shape) for part, b in zip(parts, buffers, strict=True)])


def _warn_of_large_buffer(entry: _BufferEntry) -> None:
    assert entry.buffer is not None
    warn_user(
        f"The buffer {entry.name!r} ({entry.buffer.nbytes / 2**30:.1f} GB) moved for the first time in an update that was not "
        "applied, and had not been copied, since buffers that never move are copied up to 1 GB only: what was written to it "
        "stays. From here on it is copied before each update."
    )
