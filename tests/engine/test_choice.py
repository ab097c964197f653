"""Which dtype and attention a device gets, and that the reason is said."""

import importlib.util
import logging
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner.choice import AttentionChoice, pick_attention, pick_dtype, settle
from octavo_engine.runner.kv_cache import KVShape

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def shape(head_dim: int = 64, dtype: torch.dtype = torch.bfloat16) -> KVShape:
    return KVShape(num_layers=1, num_kv_heads=1, head_dim=head_dim, dtype=dtype)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with flash-attn and an Ampere GPU."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "flash_attn" else real(name))
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    return monkeypatch


def reason(shape: KVShape, device: torch.device = CUDA, **settings: int) -> str:
    choice = pick_attention(EngineConfig(**settings), shape, device)  # type: ignore[arg-type]
    assert choice.name == "sdpa"
    return choice.reason


def test_auto_takes_flash_attn_where_everything_fits(gpu: pytest.MonkeyPatch) -> None:
    assert pick_attention(EngineConfig(), shape(), CUDA).name == "flash"
    assert pick_attention(EngineConfig(attention="flash"), shape(), CUDA).name == "flash"


def test_a_setting_of_sdpa_is_obeyed(gpu: pytest.MonkeyPatch) -> None:
    choice = pick_attention(EngineConfig(attention="sdpa"), shape(), CUDA)
    assert choice == AttentionChoice("sdpa", "the setting attention says so")


def test_auto_says_what_does_not_fit(gpu: pytest.MonkeyPatch) -> None:
    assert "runs on CUDA, not on cpu" in reason(shape(), CPU)
    assert "not float32" in reason(shape(dtype=torch.float32))
    assert "steps of 8, not 320" in reason(shape(320))
    assert "steps of 8, not 60" in reason(shape(60))
    assert "multiple of 256 tokens, not 16" in reason(shape(), block_size=16)


def test_an_older_gpu_and_a_flash_attn_for_another_torch_are_named(gpu: pytest.MonkeyPatch) -> None:
    with gpu.context() as older:
        older.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 5))
        assert "compute capability 8.0 (Ampere) or newer, not 7.5" in reason(shape())
    gpu.setitem(sys.modules, "flash_attn", None)  # importing it raises ImportError
    choice = pick_attention(EngineConfig(), shape(), CUDA)
    assert choice.reason.startswith("flash-attn does not import (")
    assert choice.remedy == f"install it again, built for torch {torch.__version__}"


def test_without_flash_attn_its_installation_is_named(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(importlib.util, "find_spec", lambda _name: None)
    assert pick_attention(EngineConfig(), shape(), CUDA) == AttentionChoice(
        "sdpa", "flash-attn is not installed", is_slow=True, remedy="pip install --no-build-isolation 'octavo[flash]'"
    )


def test_the_extra_that_the_remedy_names_exists() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(requirement.startswith("flash-attn") for requirement in project["optional-dependencies"]["flash"])


@pytest.mark.parametrize(("device", "why"), [(CPU, "runs on CUDA, not on cpu"), (CUDA, "octavo.flash.")])
def test_flash_that_cannot_serve_is_refused_with_reason_and_remedy(
    gpu: pytest.MonkeyPatch, device: torch.device, why: str
) -> None:
    gpu.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match=rf'set to flash, but flash-attn .*{why}.* with attention = "auto"'):
        pick_attention(EngineConfig(attention="flash"), shape(), device)


@pytest.mark.parametrize(("choice", "level"), [
    (AttentionChoice("sdpa", "it rains"), logging.INFO),
    (AttentionChoice("sdpa", "it rains", is_slow=True), logging.WARNING),
])  # fmt: skip
def test_the_log_says_which_attention_and_why(
    caplog: pytest.LogCaptureFixture, choice: AttentionChoice, level: int
) -> None:
    with caplog.at_level(logging.INFO):
        settle(EngineConfig(), choice, CUDA)
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (level, "attention: sdpa, because it rains")
    ]


@pytest.mark.parametrize(("attention", "device", "block_size", "tokens"), [
    ("flash", CUDA, 256, 8192), ("sdpa", CUDA, 16, 8192), ("sdpa", CPU, 16, 256),
])  # fmt: skip
def test_attention_and_device_bring_their_sizes(
    attention: str, device: torch.device, block_size: int, tokens: int
) -> None:
    config = settle(EngineConfig(), AttentionChoice(attention, ""), device)
    assert (config.block_size, config.max_num_batched_tokens) == (block_size, tokens)


@pytest.mark.parametrize(("has_bfloat16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_computes_in_bfloat16_or_where_it_would_be_emulated_in_float16(
    monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation or has_bfloat16
    )
    assert pick_dtype("auto", CUDA) is dtype
    assert pick_dtype("float32", CUDA) is torch.float32


def test_the_cpu_computes_in_float32() -> None:
    assert pick_dtype("auto", CPU) is torch.float32
    assert pick_dtype("bfloat16", CPU) is torch.bfloat16
