"""KV blocks of 256 tokens from a GPU's pool to a disk and back, under the fast path."""

import torch
from tests.engine.memory_files import MemoryFiles
from tests.gpu.stage import BLOCK, BLOCK_BYTES, GREEDY, Reply, assert_same, make_loaded, prompt, reply_of

from octavo_engine.loaded import Loaded
from octavo_engine.runner.block_bytes import BlockBytes
from octavo_engine.runner.kv_cache import KVCache, KVShape


def test_a_block_goes_out_and_comes_back_bit_by_bit() -> None:
    shape = KVShape(num_layers=3, num_kv_heads=2, head_dim=64, dtype=torch.bfloat16)
    cache = KVCache(shape, 3, BLOCK, torch.device("cuda"))
    cache.data.copy_(torch.randn(cache.data.shape))
    before = cache.data.clone()
    memory = BlockBytes(cache)
    assert memory.block_bytes == BLOCK_BYTES
    data = bytearray(memory.read(1))
    cache.data[1].zero_()
    memory.write(1, data)
    assert torch.equal(cache.data, before)


def test_the_reply_after_a_load_is_that_of_a_warm_run() -> None:
    """The prompt goes through two full blocks and the tail of a third."""
    files = MemoryFiles()
    first = start(files)
    history = [*prompt(600), *(token for token, _ in ask(first, files, prompt(600)))]
    files.serve()
    warm = ask(first, files, [*history, 7, 8, 9])
    loaded = ask(start(files), files, [*history, 7, 8, 9])
    (read,) = files.reads
    assert [len(block.tokens) for block in read] == [BLOCK, BLOCK, len(history) - 1 - 2 * BLOCK]
    assert_same(loaded, warm)


def start(files: MemoryFiles) -> Loaded:
    loaded = make_loaded("LlamaConfig")
    assert loaded.memory is not None
    files.attach(loaded.engine, loaded.memory)
    return loaded


def ask(loaded: Loaded, files: MemoryFiles, token_ids: list[int]) -> Reply:
    loaded.engine.add("only", token_ids, GREEDY)
    events = []
    while loaded.engine.has_work:
        if loaded.engine.awaits_disk:
            files.serve()
        events += loaded.engine.step()
    loaded.engine.check_integrity()
    return reply_of("only", events)
