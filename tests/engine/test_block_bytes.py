"""Laws of the pool's bytes: a block goes to disk and back bit by bit, and a loaded prefix gives a warm run's logits."""

import pytest
import torch
from tests.engine.architectures import ARCHITECTURES, CPU, build
from tests.engine.memory_files import MemoryFiles
from tokenizers import Tokenizer, models
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from octavo_engine.config import EngineConfig
from octavo_engine.events import Delta, Finished, TokenLogprobs
from octavo_engine.loaded import Loaded
from octavo_engine.params import SamplingParams
from octavo_engine.runner.block_bytes import BlockBytes
from octavo_engine.runner.kv_cache import KVCache, KVShape
from octavo_engine.runner.load import build_engine
from octavo_engine.runner.routing import ATTENTION_NAME, register

PROMPT = [3 + number * number % 120 for number in range(90)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_block_goes_out_and_comes_back_bit_by_bit_and_touches_no_other(dtype: torch.dtype) -> None:
    shape = KVShape(num_layers=3, num_kv_heads=2, head_dim=8, dtype=dtype)
    cache = KVCache(shape, 4, 16, CPU)
    cache.data.copy_(torch.randn(cache.data.shape))
    before = cache.data.clone()
    memory = BlockBytes(cache)
    assert memory.block_bytes == 16 * shape.bytes_per_token
    data = bytearray(memory.read(2))
    cache.data[2].zero_()
    memory.write(2, data)
    assert torch.equal(cache.data, before)
    memory.write(0, data)
    assert torch.equal(cache.data[0], before[2])
    assert torch.equal(cache.data[1:], before[1:])


def test_what_was_read_does_not_change_with_the_pool() -> None:
    cache = KVCache(KVShape(num_layers=1, num_kv_heads=1, head_dim=2, dtype=torch.float32), 2, 4, CPU)
    data = bytes(view := BlockBytes(cache).read(0))
    cache.data.fill_(1.0)
    assert bytes(view) == data


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-moe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_logits_after_a_load_are_those_of_a_warm_run(name: str, dtype: torch.dtype) -> None:
    """Bit by bit: the same kernels compute the same tokens over the same bytes."""
    register()
    model = build(*ARCHITECTURES[name], ATTENTION_NAME)
    torch.nn.Module.to(model, dtype)
    files = MemoryFiles()
    first = start(model, files)
    reply, _, _ = ask(first, files, PROMPT)
    files.serve()
    follow_up = [*PROMPT, *reply, 5, 6, 7]
    warm = ask(first, files, follow_up)
    loaded = ask(start(model, files), files, follow_up)
    assert warm == loaded
    assert files.reads


def test_a_model_in_another_dtype_or_with_other_blocks_finds_nothing() -> None:
    register()
    model = build(*ARCHITECTURES["llama"], ATTENTION_NAME)
    files = MemoryFiles()
    ask(start(model, files), files, PROMPT)
    files.serve()
    torch.nn.Module.to(model, torch.bfloat16)
    ask(start(model, files), files, PROMPT)
    torch.nn.Module.to(model, torch.float32)
    ask(start(model, files, block_size=32), files, PROMPT)
    assert files.reads == []
    ask(start(model, files), files, PROMPT)
    assert len(files.reads) == 1


def start(model: PreTrainedModel, files: MemoryFiles, *, block_size: int = 16) -> Loaded:
    words = {f"w{number}": number for number in range(128)}
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0"))
    )
    loaded = build_engine(
        model, tokenizer, EngineConfig(kv_cache_memory_bytes=1 << 22, block_size=block_size), name="tiny"
    )
    assert loaded.memory is not None
    files.attach(loaded.engine, loaded.memory)
    return loaded


def ask(loaded: Loaded, files: MemoryFiles, prompt: list[int]) -> tuple[list[int], list[TokenLogprobs], int]:
    """The ids of a reply, their logprobs, and how many tokens of the prompt were not computed."""
    loaded.engine.add("request", prompt, GREEDY)
    ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    cached = 0
    while loaded.engine.has_work:
        if loaded.engine.awaits_disk:
            files.serve()
        for event in loaded.engine.step():
            if isinstance(event, Delta):
                ids += event.token_ids
                logprobs += event.logprobs
            elif isinstance(event, Finished):
                cached = event.usage.cached_tokens
    return ids, logprobs, cached
