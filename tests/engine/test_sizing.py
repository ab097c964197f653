"""The KV pool holds at least one full context, or the model is refused with the numbers and what would fit."""

import logging
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.architectures import build

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner import routing
from octavo_engine.runner.kv_cache import KVShape
from octavo_engine.runner.rehearsal import largest_batch, rehearse
from octavo_engine.runner.sizing import (
    GRAPH_BYTES,
    SAMPLING_BYTES,
    Memory,
    gpu_memory,
    measure,
    pick_num_blocks,
    reckon_step_bytes,
)

SHAPE = KVShape(num_layers=2, num_kv_heads=2, head_dim=8, dtype=torch.float32)  # 256 bytes a token
BLOCK = 16 * 256
GB = 10**9


def memory(device: str, room: int) -> Memory:
    return Memory(device, total=100 * GB, free=60 * GB, room=room)


def pool(device: str, room: int, context: int, **settings: int) -> int:
    return pick_num_blocks(memory(device, room), SHAPE, EngineConfig(block_size=16, **settings), context)  # type: ignore[arg-type]


def test_a_gpu_gives_all_that_it_has_left() -> None:
    assert pool("cuda", room=1000 * BLOCK + 5, context=300) == 1000


def test_the_cpu_gives_two_gib_or_a_quarter_of_what_is_free() -> None:
    assert pool("cpu", room=100 * GB, context=300) == (2 << 30) // BLOCK
    assert pool("cpu", room=4000 * BLOCK, context=300) == 1000


def test_the_cpu_gives_more_where_one_context_needs_it() -> None:
    assert pool("cpu", room=1000 * BLOCK, context=16 * 900) == 900


def test_the_pool_is_what_the_setting_says() -> None:
    assert pool("cpu", room=GB, context=300, kv_cache_memory_bytes=20 * BLOCK + 1) == 20


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@given(room=st.integers(0, 200 * BLOCK), context=st.integers(1, 2000), setting=st.none() | st.integers(1, 200 * BLOCK))
def test_there_is_room_for_one_full_context_or_a_refusal(
    device: str, room: int, context: int, setting: int | None
) -> None:
    settings = {} if setting is None else {"kv_cache_memory_bytes": setting}
    needed = -(-context // 16) * BLOCK
    if max(needed, setting or 0) > room or (setting or needed) < needed:
        with pytest.raises(ModelError, match=r"context|KV pool needs"):
            pool(device, room, context, **settings)
    else:
        num_blocks = pool(device, room, context, **settings)
        assert needed <= num_blocks * BLOCK <= room


def test_a_gpu_that_is_too_full_says_how_long_a_context_fits() -> None:
    with pytest.raises(ModelError) as caught:
        pool("cuda", room=10 * BLOCK, context=300)
    assert str(caught.value) == (
        "one context of 300 tokens needs 0.08 MB, the KV pool has 0.04 MB; cuda has 100.00 GB, 60.00 GB of it free, "
        "0.04 MB for KV at most. Set max_model_len to 160 or less, or free some memory"
    )


def test_the_named_context_fits() -> None:
    assert pool("cuda", room=10 * BLOCK, context=160) == 10


def test_a_setting_below_one_context_is_refused_rather_than_cutting_replies_short() -> None:
    with pytest.raises(ModelError, match=r"Set max_model_len to 80 or less, or raise kv_cache_memory_bytes"):
        pool("cpu", room=GB, context=300, kv_cache_memory_bytes=5 * BLOCK)


def test_a_setting_beyond_the_memory_is_refused() -> None:
    with pytest.raises(ModelError, match=r"the KV pool needs 2\.00 GB; cuda .* 1\.00 GB for KV at most"):
        pool("cuda", room=GB, context=300, kv_cache_memory_bytes=2 * GB)


def test_a_device_without_room_for_one_block_says_so() -> None:
    with pytest.raises(ModelError, match="Not one block fits: free some memory, or take a smaller model"):
        pool("cuda", room=0, context=300)


def test_the_numbers_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        pool("cuda", room=190 * BLOCK, context=300)
    assert caplog.messages == [
        "KV pool: 0.78 MB in 190 blocks of 16 tokens, room for 10.0 contexts of 300 tokens; cuda has 100.00 GB, "
        "60.00 GB of it free, 0.78 MB for KV at most"
    ]


def fake_model(device: str) -> Any:
    text = SimpleNamespace(intermediate_size=1000, hidden_size=500, vocab_size=2000)
    config = SimpleNamespace(get_text_config=lambda: text)
    return SimpleNamespace(device=torch.device(device), dtype=torch.bfloat16, config=config)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """100 GB, 30 of them taken by weights and others."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (70 * GB, 100 * GB))
    return monkeypatch


CONFIG = EngineConfig(max_num_batched_tokens=1000, max_num_seqs=10)
SAMPLING = 10 * 2000 * SAMPLING_BYTES


def test_a_gpu_keeps_its_share_and_what_a_step_was_measured_to_take(gpu: pytest.MonkeyPatch) -> None:
    """90 % may be used, so 60 GB more."""
    memory = gpu_memory(fake_model("cuda"), CONFIG, 3 * GB)
    assert memory == Memory("cuda", 100 * GB, 70 * GB, 57 * GB - SAMPLING - GRAPH_BYTES)


def test_a_step_that_could_not_be_measured_is_reckoned(gpu: pytest.MonkeyPatch) -> None:
    step = 1000 * (2 * 1000 + 8 * 500) * 2 * 2
    assert reckon_step_bytes(fake_model("cuda"), CONFIG) == step
    assert gpu_memory(fake_model("cuda"), CONFIG, None).room == 60 * GB - step - SAMPLING - GRAPH_BYTES


def test_a_gpu_that_others_fill_has_no_room(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(torch.cuda, "mem_get_info", lambda _device: (5 * GB, 100 * GB))
    assert gpu_memory(fake_model("cuda"), CONFIG, GB).room == 0


def test_the_cpu_may_give_what_the_system_has_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GB, available=7 * GB))
    found = measure(fake_model("cpu"), CONFIG, SHAPE, 300, is_flash=False)
    assert found == Memory("cpu", 16 * GB, 7 * GB, 7 * GB)


# ---- the rehearsal of the largest step ----


def test_the_largest_batch_has_all_tokens_in_rows_that_fit_the_context_and_blocks_of_their_own() -> None:
    batch, num_blocks = largest_batch(num_tokens=700, max_model_len=300, block_size=16)
    assert batch.query_lens == batch.context_lens == [300, 300, 100]
    assert num_blocks == 19 + 19 + 7
    assert len(set(batch.slots(16))) == 700
    assert max(batch.slots(16)) < num_blocks * 16


def test_the_rehearsal_runs_the_whole_step_and_gives_its_peak(gpu: pytest.MonkeyPatch) -> None:
    """On the CPU, with the counters of a GPU replaced."""
    gpu.setattr(torch.cuda, "reset_peak_memory_stats", lambda _device: None)
    gpu.setattr(torch.cuda, "memory_reserved", lambda _device: 5)
    gpu.setattr(torch.cuda, "max_memory_reserved", lambda _device: 12)
    gpu.setattr(torch.cuda, "synchronize", lambda _device: None)
    routing.register()
    model = build("Qwen3Config", {"head_dim": 32}, routing.ATTENTION_NAME)
    lengths: list[int] = []
    model.register_forward_pre_hook(
        lambda _module, _args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    shape = routing.probe(model).shape
    assert rehearse(model, shape, 16, num_tokens=700, max_model_len=512, is_flash=False) == 7
    assert lengths == [4, 700]
    backends = [module.octavo_backend for module in model.modules() if hasattr(module, "octavo_backend")]
    assert backends
    assert not any(hasattr(backend, "_cache") for backend in backends)


def test_a_rehearsal_that_does_not_fit_leaves_the_reckoning(gpu: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    gpu.setattr("octavo_engine.runner.rehearsal._peak_bytes", fill)
    model = build("Qwen3Config", {"head_dim": 32}, "eager")
    assert rehearse(model, SHAPE, 16, num_tokens=1, max_model_len=1, is_flash=False) is None
