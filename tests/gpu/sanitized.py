"""Runs each own kernel once on a tiny model, phase by phase, for a memory checker."""

import torch
from tests.gpu.test_gpu_fast_path import build

from octavo_engine.runner import routing
from octavo_engine.runner.fast.kernels import Advance
from octavo_engine.runner.fast.step import FusedStep
from octavo_engine.runner.fast.weights import merge_weights
from octavo_engine.runner.kv_cache import KVCache


@torch.inference_mode()
def main() -> None:
    routing.register()
    model = build("Qwen3Config", torch.bfloat16, routing.ATTENTION_NAME)
    found = routing.probe(model)
    weights = merge_weights(model, found.specs, 1024)
    cache = KVCache(found.shape, 8, 256, torch.device("cuda"))
    ids, positions = (torch.tensor(values, device="cuda", dtype=torch.int32) for values in ([5, 6], [300, 0]))
    tables = torch.tensor([[0, 1], [2, 3]], device="cuda", dtype=torch.int32)
    logits = FusedStep(weights, cache, 2, 16).run_phase_by_phase(ids, positions, tables)
    state = [ids, positions, *(torch.zeros(2, device="cuda", dtype=torch.int32) for _ in range(2))]
    out = torch.zeros(4, 2, device="cuda", dtype=torch.int32)
    Advance(2, logits.shape[1], torch.device("cuda"))(logits, None, (*state, out))
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
