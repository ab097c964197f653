"""The memory of the KV pool: one tensor, a block's rows of all layers side by side."""

import math
from dataclasses import dataclass

import numpy
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """The KV of one token: `num_layers` times a key and a value of `num_kv_heads` x `head_dim`."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.dtype.itemsize


class KVCache:
    """`data` is (num_blocks, num_layers, 2, block_size, num_kv_heads, head_dim).

    A block is contiguous over layers, so that copying one, or writing it to disk, moves a single run of bytes; a
    layer's pages are views with a stride, which gathers and flash-attn's paged functions take as they are. One more
    block than the planner knows, `scratch_block`, takes what the padding of a graph writes.
    """

    def __init__(self, shape: KVShape, num_blocks: int, block_size: int, device: torch.device) -> None:
        size = (num_blocks + 1, shape.num_layers, 2, block_size, shape.num_kv_heads, shape.head_dim)
        self.data = _zeros(size, shape.dtype, device)
        self._layers = [(self.data[:, layer, 0], self.data[:, layer, 1]) for layer in range(shape.num_layers)]
        self.block_size = block_size
        self.scratch_block = num_blocks

    def layer(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The pages of one layer: keys and values, (num_blocks, block_size, num_kv_heads, head_dim) each."""
        return self._layers[number]

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copy whole blocks, (source, destination) each, of which no source is a destination; takes no memory."""
        for source, destination in pairs:
            self.data[destination].copy_(self.data[source])


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros; on the CPU in memory that the system hands out at the first write (torch would write all of it now)."""
    if device.type != "cpu":
        return torch.zeros(size, dtype=dtype, device=device)
    num_bytes = math.prod(size) * dtype.itemsize
    return torch.from_numpy(numpy.zeros(num_bytes, numpy.uint8)).view(dtype).view(size)
