"""What loading takes from a model's files: its weights step by step, its context, its ends of turn."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from octavo_engine.config import EngineConfig
from octavo_engine.errors import ModelError
from octavo_engine.events import Finished, StopReason
from octavo_engine.loaded import LoadStep
from octavo_engine.params import SamplingParams
from octavo_engine.runner import routing
from octavo_engine.runner.load import build_engine, stop_ids, weight_bytes
from octavo_engine.runner.reading import READING, load_model
from octavo_engine.runner.sizing import pick_context

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=300,
        eos_token_id=[2, 5],
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="module")
def folder(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("asked", "context"), [(None, 300), (100, 100), (300, 300)])
def test_the_context_is_the_models_own_or_a_smaller_one(
    model: PreTrainedModel, asked: int | None, context: int
) -> None:
    assert pick_context(model, EngineConfig(max_model_len=asked)) == context


def test_a_context_beyond_the_models_own_is_refused_with_both_numbers(model: PreTrainedModel) -> None:
    with pytest.raises(ModelError, match="max_model_len is 301, but the model's context ends at 300 tokens"):
        pick_context(model, EngineConfig(max_model_len=301))


def test_a_runner_of_single_steps_is_never_asked_for_several(folder: Path) -> None:
    """As the general path's models are, whatever a user asks for."""
    routing.register()
    model = load_model(folder, torch.float32, CPU)
    words = {f"w{number}": number for number in range(32)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="w0")))  # type: ignore[no-untyped-call]
    config = EngineConfig(num_decode_steps=4, kv_cache_memory_bytes=1 << 20)
    engine = build_engine(model, tokenizer, config, name="tiny").engine
    engine.add("a", [1, 2, 3], SamplingParams(max_tokens=9, ignore_eos=True))
    events = [event for _ in range(20) if engine.has_work for event in engine.step()]
    ends = [(event.stop_reason, event.error) for event in events if isinstance(event, Finished)]
    assert ends == [(StopReason.LENGTH, "")]


def test_the_weights_of_a_step_are_all_but_a_table_of_embeddings_that_is_no_head(model: PreTrainedModel) -> None:
    tied_config = LlamaConfig.from_dict({**model.config.to_dict(), "tie_word_embeddings": True})
    others = 2 * 16 + 4 * 16 * 16 + 3 * 16 * 16 + 16  # norms, attention, MLP, last norm
    assert weight_bytes(model) == 4 * (others + 32 * 16)
    assert weight_bytes(LlamaForCausalLM(tied_config)) == 4 * (others + 32 * 16)


def test_every_end_of_turn_stops(model: PreTrainedModel) -> None:
    tokenizer: Any = SimpleNamespace(eos_token_id=7)
    assert sorted(stop_ids(model, tokenizer)) == [2, 5, 7]


def test_the_percent_told_is_the_share_of_the_tensors_that_are_in_place(folder: Path) -> None:
    """Nine matrices and norms of one layer, embedding, final norm and head: twelve tensors."""
    steps: list[LoadStep] = []
    loaded = load_model(folder, torch.float32, CPU, steps.append)
    assert len(list(loaded.parameters())) == 12
    assert steps[0] == LoadStep(READING)
    assert [step.percent for step in steps[1:]] == [100 * number // 12 for number in range(12)]


def test_damaged_weights_are_refused_and_the_next_load_is_counted_anew(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ModelError, match="cannot run here"):
        load_model(tmp_path, torch.float32, CPU)
    steps: list[LoadStep] = []
    load_model(folder, torch.float32, CPU, steps.append)
    assert steps[-1] == LoadStep(READING, 91)


@pytest.mark.parametrize(("device", "device_map"), [("cpu", None), ("cuda", {"": torch.device("cuda")})])
def test_weights_for_a_gpu_go_there_as_they_are_read(
    model: PreTrainedModel, folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, device_map: object
) -> None:
    asked: dict[str, object] = {}

    def remember(_folder: Path, **options: object) -> PreTrainedModel:
        asked.update(options)
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", remember)
    load_model(folder, torch.bfloat16, torch.device(device))
    assert asked["device_map"] == device_map


def test_a_full_gpu_is_no_fault_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_folder: Path, **_options: object) -> PreTrainedModel:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", fill)
    with pytest.raises(torch.OutOfMemoryError):
        load_model(folder, torch.float32, CPU)
