"""The default model as the real pull makes it."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from octavo.models.manifest import read_manifest
from octavo.models.names import KNOWN_MODELS
from octavo.models.resolve import check_folder

pytestmark = [pytest.mark.model, pytest.mark.slow]


def test_it_is_whole_and_says_where_it_came_from(model_folder: Path) -> None:
    assert check_folder(model_folder) == model_folder
    manifest = read_manifest(model_folder)
    assert manifest
    assert manifest.sha256 == KNOWN_MODELS["smollm2-135m"].gguf_sha256


def test_its_weights_are_float32_and_tied(model_folder: Path) -> None:
    with safe_open(model_folder / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
        assert weights.get_slice("model.embed_tokens.weight").get_dtype() == "F32"
    assert "lm_head.weight" not in names
    assert len(names) == 272  # 30 layers of 9, the embedding and the last norm


def test_its_config_needs_no_gguf_any_more(model_folder: Path) -> None:
    config = json.loads((model_folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 30)


def test_its_chat_template_came_along(model_folder: Path) -> None:
    assert "<|im_start|>" in (model_folder / "chat_template.jinja").read_text()
