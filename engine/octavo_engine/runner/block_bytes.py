"""The bytes of the KV pool's blocks, for what keeps them on disk."""

import torch

from octavo_engine.disk_tier import Bytes
from octavo_engine.runner.kv_cache import KVCache


class BlockBytes:
    """See BlockMemory. A block is one run of bytes over all layers; on a GPU the copies run in the stream of the steps,
    so that they see what the steps before them wrote."""

    def __init__(self, cache: KVCache) -> None:
        self._data = cache.data
        self.block_bytes = cache.data[0].numel() * cache.data.element_size()

    def read(self, block: int) -> Bytes:
        """See BlockMemory."""
        host = torch.empty(self.block_bytes, dtype=torch.uint8, pin_memory=self._data.is_cuda)
        host.copy_(self._flat(block))
        return host.numpy().data

    def write(self, block: int, data: bytearray) -> None:
        """See BlockMemory."""
        self._flat(block).copy_(torch.frombuffer(data, dtype=torch.uint8))

    def _flat(self, block: int) -> torch.Tensor:
        return self._data[block].view(-1).view(torch.uint8)
