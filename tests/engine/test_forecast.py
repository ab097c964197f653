"""What is foretold from a model's config alone is what loading then does."""

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
import transformers
from tests.engine.architectures import ARCHITECTURES, CPU, REFUSED, TINY, build

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.runner import forecast as forecasting
from octavo_engine.runner import routing
from octavo_engine.runner.choice import AttentionChoice
from octavo_engine.runner.forecast import UnknownError, attention_of_most, forecast, forecast_config, look_at
from octavo_engine.runner.reading import load_model

CONFIG = EngineConfig()
UNKNOWN = ("qwen3-moe", "gpt2")
"""torch multiplies groups of experts without values in bfloat16 only, and GPT-2 looks for padding among the ids."""


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in UNKNOWN])
def test_sizes_and_path_are_those_of_the_model_itself(name: str) -> None:
    kind, settings = ARCHITECTURES[name]
    routing.register()
    model = build(kind, settings, routing.ATTENTION_NAME)
    found = routing.probe(model)
    foretold = forecast_config(model.config, CONFIG, CPU)
    assert foretold.architecture == type(model).__name__
    assert foretold.max_model_len == 512
    assert foretold.context_bytes == 512 * found.shape.bytes_per_token
    assert foretold.weight_bytes == sum(parameter.nbytes for parameter in model.parameters())


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_model_that_cannot_be_probed_without_values_is_not_judged(name: str) -> None:
    kind, settings = ARCHITECTURES[name]
    with pytest.raises(UnknownError):
        forecast_config(getattr(transformers, kind)(**TINY | settings), CONFIG, CPU)


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_loading_refuses_is_refused_or_not_known(name: str) -> None:
    kind, settings = REFUSED[name]
    with pytest.raises((ModelError, UnknownError)):
        forecast_config(getattr(transformers, kind)(**TINY | settings), CONFIG, CPU)


@pytest.mark.parametrize(("kind", "why"), [
    ("LlamaConfig", ""),
    ("Qwen3Config", ""),
    ("Gemma2Config", "its attention is windowed or capped"),
    ("Olmo2Config", "its layers are built otherwise"),
])  # fmt: skip
def test_the_fast_path_is_foretold_by_structure(monkeypatch: pytest.MonkeyPatch, kind: str, why: str) -> None:
    monkeypatch.setattr(forecasting, "pick_attention", lambda *_: AttentionChoice("flash", ""))
    foretold = forecast_config(getattr(transformers, kind)(**TINY | {"head_dim": 16}), CONFIG, CPU)
    assert foretold.general_path.startswith(why)
    assert bool(foretold.general_path) == bool(why)


def test_without_flash_attn_the_general_path_is_taken() -> None:
    foretold = forecast_config(transformers.LlamaConfig(), CONFIG, CPU)
    assert foretold.general_path == "the fast path is built on flash-attn, and attention is sdpa"
    assert foretold.attention == attention_of_most(CONFIG, CPU)


def test_a_folder_without_a_readable_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=f"{tmp_path}/config.json cannot be used"):
        forecast(tmp_path, CONFIG, CPU)


@pytest.mark.parametrize("look", [
    lambda folder: forecast(folder, CONFIG, CPU),
    lambda folder: load_model(folder, torch.float32, CPU),
])  # fmt: skip
def test_code_that_a_model_brings_is_not_run_and_nobody_is_asked(
    tmp_path: Path, look: Callable[[Path], object]
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}')
    (tmp_path / "own.py").write_text("raise SystemExit('this was run')\n")
    with pytest.raises(ModelError, match="it brings program code of its own, which is not run"):
        look(tmp_path)


def test_the_cpu_is_described_by_its_cores_and_memory() -> None:
    device = look_at(torch.device("cpu"))
    assert (device.kind, device.name) == ("cpu", f"{psutil.cpu_count()} cores")
    assert 0 < device.free_bytes < device.total_bytes
