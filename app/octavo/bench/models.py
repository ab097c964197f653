"""The engines that are measured: a pulled model, or a known shape with random weights."""

import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from octavo.bench.workloads import SHAPES
from octavo.models.resolve import resolve
from octavo.paths import Paths
from octavo_engine.config import EngineConfig
from octavo_engine.loaded import Loaded
from octavo_engine.runner import load, routing
from octavo_engine.runner.choice import pick_device, pick_dtype


def load_for_bench(name: str, config: EngineConfig, paths: Paths) -> Loaded:
    """The engine of a model's name. Raises ModelMissingError or ModelError like any other start."""
    return load_shape(name, config) if name in SHAPES else load.load_engine(resolve(name, paths), config)


def load_shape(name: str, config: EngineConfig) -> Loaded:
    """A model of random weights on the device, with a tokenizer whose ids are words of their own."""
    kind, settings = SHAPES[name]
    device = pick_device()
    dtype = pick_dtype(config.dtype, device)
    routing.register()
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            getattr(transformers, kind)(**settings), dtype=dtype, attn_implementation=routing.ATTENTION_NAME
        )
    model.train(False)
    words = {f"w{number}": number for number in range(settings["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))
    )
    return load.build_engine(model, tokenizer, config, name=name)
