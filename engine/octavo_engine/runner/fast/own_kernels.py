"""What our own CUDA kernels all ask of a model and of the device that it is on."""

import torch

from octavo_engine.runner.fast.weights import FastWeights

OLDEST_CAPABILITY = (9, 0)
"""Of Hopper, the first with bulk copies into shared memory, and with enough of that."""


def why_not_own(w: FastWeights, max_group: int) -> str:
    """Why no kernel for up to `max_group` query heads a KV head can serve these weights; empty when one can."""
    capability = torch.cuda.get_device_capability(w.qkv.device)
    if capability < OLDEST_CAPABILITY:
        return f"the GPU's compute capability is {'.'.join(map(str, capability))}, not 9.0 (Hopper) or newer"
    if w.head_dim not in (64, 128, 256):
        return f"its heads have {w.head_dim} dimensions, not 64, 128 or 256"
    if w.num_heads > max_group * w.num_kv_heads:
        return f"more than {max_group} of its heads share a KV head"
    return ""
