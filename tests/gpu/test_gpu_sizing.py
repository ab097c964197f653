"""What is foretold, measured and taken of a GPU's memory."""

import gc

import pytest
import torch
from tests.gpu.stage import BLOCK, KINDS, build, make_engine

from octavo_engine.config import EngineConfig
from octavo_engine.runner import routing
from octavo_engine.runner.forecast import forecast_config, look_at
from octavo_engine.runner.rehearsal import rehearse

CUDA = torch.device("cuda")


@pytest.mark.parametrize("kind", KINDS)
def test_the_path_that_is_foretold_is_the_one_that_loading_takes(kind: str) -> None:
    foretold = forecast_config(build(kind, torch.bfloat16, "eager").config, EngineConfig(), CUDA)
    assert foretold.attention.name == "flash"
    assert foretold.general_path == ""
    make_engine(kind)  # asserts that it took the fast path


def test_the_device_is_described_by_its_name_and_memory() -> None:
    device = look_at(CUDA)
    assert (device.kind, device.name) == ("cuda", torch.cuda.get_device_name())
    assert 0 < device.free_bytes < device.total_bytes


@pytest.mark.parametrize("is_flash", [True, False])
def test_a_rehearsal_tells_its_peak_and_leaves_nothing_behind(is_flash: bool) -> None:
    """Gate and up of 20,000 tokens, 512 wide in bfloat16, take 20 MB each and are there together."""
    routing.register()
    model = build("Qwen3Config", torch.bfloat16, routing.ATTENTION_NAME)
    with torch.inference_mode():
        shape = routing.probe(model).shape

    def peak() -> int | None:
        return rehearse(model, shape, BLOCK, num_tokens=20_000, max_model_len=4096, is_flash=is_flash)

    peak()  # libraries keep a workspace of theirs from the first time on
    gc.collect()
    before = torch.cuda.memory_allocated()
    measured = peak()
    gc.collect()
    assert measured is not None
    assert measured > 20 * 10**6
    assert torch.cuda.memory_allocated() <= before + 10**6


def test_weights_pool_and_graphs_stay_within_the_share_that_is_allowed() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    engine = make_engine("Qwen3Config", kv_cache_memory_bytes=None, gpu_memory_utilization=0.1)
    free, total = torch.cuda.mem_get_info()
    assert total - free < 0.11 * total
    assert engine.counts().total * BLOCK * 1536 > 0.05 * total
