# SPDX-License-Identifier: Apache-2.0
"""What functions and classes of torch, NumPy and others do, by their full names as `SourceModule.qualify` gives them."""

from functools import cache

# what it does                 full names
_TABLE = """
switches gradients off         torch.no_grad torch.inference_mode torch.autograd.no_grad torch.autograd.inference_mode
                               torch.autograd.grad_mode.no_grad torch.autograd.grad_mode.inference_mode
switches gradients             torch.set_grad_enabled torch.autograd.set_grad_enabled torch.autograd.grad_mode.set_grad_enabled
casts within                   torch.autocast torch.amp.autocast torch.cuda.amp.autocast torch.cpu.amp.autocast
makes a generator              numpy.random.default_rng numpy.random.RandomState numpy.random.Generator random.Random
takes numbers over             torch.tensor torch.as_tensor torch.asarray torch.from_numpy torch.Tensor torch.FloatTensor
splits at random               sklearn.model_selection.train_test_split train_test_split torch.utils.data.random_split
asks all ranks                 torch.distributed.all_reduce torch.distributed.reduce torch.distributed.all_gather
                               torch.distributed.all_gather_object torch.distributed.all_gather_into_tensor
                               torch.distributed.gather torch.distributed.gather_object torch.distributed.broadcast
                               torch.distributed.broadcast_object_list torch.distributed.barrier torch.distributed.scatter
                               torch.distributed.scatter_object_list torch.distributed.reduce_scatter
                               torch.distributed.reduce_scatter_tensor torch.distributed.all_to_all
                               torch.distributed.all_to_all_single torch.distributed.monitored_barrier
asks the machine               torch.cuda.is_available torch.backends.mps.is_available torch.xpu.is_available
                               torch.accelerator.is_available torch.distributed.is_initialized
                               torch.distributed.is_available torch.cuda.is_bf16_supported torch.is_grad_enabled
leaves CUDA alone without it   torch.cuda.empty_cache torch.cuda.is_initialized torch.cuda.manual_seed
                               torch.cuda.manual_seed_all torch.cuda.seed torch.cuda.seed_all torch.cuda.memory_stats
                               torch.cuda.memory_stats_as_nested_dict torch.cuda.memory_allocated
                               torch.cuda.max_memory_allocated torch.cuda.memory_reserved torch.cuda.memory_cached
                               torch.cuda.max_memory_reserved torch.cuda.max_memory_cached
is a recurrent layer           torch.nn.LSTM torch.nn.GRU torch.nn.RNN
is a softmax layer             torch.nn.Softmax torch.nn.LogSoftmax torch.nn.Softmin
gives an array anew            numpy.append numpy.concatenate numpy.stack numpy.vstack numpy.hstack numpy.clip numpy.sort
                               numpy.squeeze numpy.expand_dims numpy.transpose numpy.reshape numpy.delete numpy.insert
                               numpy.flip numpy.pad numpy.where numpy.unique numpy.exp numpy.abs
writes to its 2nd argument     numpy.exp numpy.abs
writes to its 3rd argument     numpy.concatenate numpy.stack
writes to its 4th argument     numpy.clip
hands on what it is given      enumerate tqdm tqdm.tqdm tqdm.auto.tqdm tqdm.notebook.tqdm tqdm.rich.tqdm tqdm.std.tqdm
                               rich.progress.track iter
"""


def _names_by_effect() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    does = ""
    for line in _TABLE.strip("\n").splitlines():
        does = line[:31].strip() or does
        found[does] = (*found.get(does, ()), *line[31:].split())
    return found


FUNCTIONS = _names_by_effect()


@cache
def functions(*does: str) -> tuple[str, ...]:
    """Return the full names of what does one of these: `functions("switches gradients off", "switches gradients")`."""
    return tuple(name for each in does for name in FUNCTIONS[each])
