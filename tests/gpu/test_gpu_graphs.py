"""Replayed CUDA graphs against the same kernels without a graph, on batches past the edge of every bucket."""

import pytest
import torch
from tests.gpu.stage import BLOCK, KINDS, make_engine, prompt

from octavo_engine.batch import Batch
from octavo_engine.params import SamplingParams
from octavo_engine.runner.fast import decode_attention, fast_runner
from octavo_engine.runner.fast.fast_runner import ROW_BUCKETS, FastRunner, bucket
from octavo_engine.runner.fast.long_prompt import LongPrompt
from octavo_engine.sequence import Sequence

LARGEST_ERROR = 0.05
"""Relative, of one row's bfloat16 logits; two orders of the same sums differ by about 0.01, a wrong row by about 1."""
ROW_COUNTS = sorted({count for edge in ROW_BUCKETS for count in (edge, edge + 1) if count <= ROW_BUCKETS[-1]})
CONTEXTS = [1023, 1024, 1025, 2047, 2048, 2049, 4094, 4095, 4096]
"""Tables of 4, 8 and 16 blocks hold 1,024, 2,048 and 4,096 tokens."""


@pytest.fixture(params=["own", "flash"])
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if that of many rows was faster, where the own one can be had at all."""
    monkeypatch.setattr(decode_attention, "times", lambda *_: (1.0, 2.0) if request.param == "own" else (2.0, 1.0))


def make_runner(kind: str, num_blocks: int) -> FastRunner:
    runner = make_engine(kind, kv_cache_memory_bytes=num_blocks * BLOCK * 1536)._runner
    assert isinstance(runner, FastRunner)
    runner._most_ahead = 0  # or the logits of a step would soon be those of a later one
    return runner


def make_sequence(number: int, length: int, table: list[int]) -> Sequence:
    sequence = Sequence(str(number), prompt(length, number), SamplingParams(temperature=0.0))
    sequence.block_table = table
    return sequence


def prefill(runner: FastRunner, sequences: list[Sequence], chunk: int = 512) -> None:
    """Write the KV of whole sequences, one after the other, without a graph."""
    for sequence in sequences:
        while sequence.num_uncomputed:
            batch = Batch()
            batch.add(sequence, min(chunk, sequence.num_uncomputed))
            runner._prompt_eager(batch)
            sequence.num_computed = batch.context_lens[0]


def decode(sequences: list[Sequence]) -> Batch:
    """One more token of each; its KV is what the batch computes."""
    batch = Batch()
    for sequence in sequences:
        sequence.num_computed = len(sequence.token_ids) - 1
        batch.add(sequence, 1)
    return batch


@torch.inference_mode()
def assert_graph_equals_eager(runner: FastRunner, batch: Batch) -> None:
    eager = runner._prompt_eager(batch).float().clone()
    if batch.is_decode:
        runner.launch(batch).wait()
        num_rows = bucket(ROW_BUCKETS, len(batch.sequences))
        assert num_rows is not None
        logits = runner._graph_for(batch, num_rows).logits
    else:
        logits = runner._prompt(batch)
    ours = logits[: len(eager)].float()
    errors = (ours - eager).norm(dim=1) / eager.norm(dim=1)
    assert float(errors.max()) < LARGEST_ERROR, f"{len(eager)} rows, contexts {batch.context_lens}: {errors.tolist()}"


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_rows_grow_past_every_bucket(kind: str) -> None:
    """From one row to 256, of ragged lengths; each step computes a new token for every row there is."""
    runner = make_runner(kind, 300)
    sequences: list[Sequence] = []
    for count in ROW_COUNTS:
        fresh = [make_sequence(n, 3 + 7 * n % 40, [n]) for n in range(len(sequences), count)]
        prefill(runner, fresh)
        sequences += fresh
        for sequence in sequences:
            sequence.token_ids.append(7)
        assert_graph_equals_eager(runner, decode(sequences))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 9, 17])
@torch.inference_mode()
def test_a_context_grows_past_the_edge_of_every_table(num_rows: int) -> None:
    """One long row beside short ones, so that most of the wide table is padding."""
    runner = make_runner("Qwen3Config", 64)
    long = make_sequence(0, 1, list(range(16)))
    long.token_ids = prompt(max(CONTEXTS))
    short = [make_sequence(n, 5, [16 + n]) for n in range(1, num_rows)]
    prefill(runner, [long, *short])
    tokens = long.token_ids
    for context in CONTEXTS:
        long.token_ids = tokens[:context]
        assert_graph_equals_eager(runner, decode([*short, long]))


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_chunks_of_prompts_and_growing_rows_in_turn(kind: str) -> None:
    """Prompts of all sizes come one by one, in two chunks each, between two tokens of every row before them."""
    runner = make_runner(kind, 100)
    sequences: list[Sequence] = []
    for number, length in enumerate([5, 255, 256, 257, 700, 30, 1024, 64, 900, 3, 511, 512, 1023, 17, 8, 90, 100]):
        sequence = make_sequence(number, length, list(range(number * 5, number * 5 + 5)))
        sequences.append(sequence)
        for chunk in (length // 2, length - length // 2):
            batch = Batch()
            batch.add(sequence, chunk)
            assert_graph_equals_eager(runner, batch)
            sequence.num_computed += chunk
        for _ in range(2):
            for row in sequences:
                row.token_ids.append(7)
            assert_graph_equals_eager(runner, decode(sequences))


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize(("num_rows", "num_in_graph"), [(8, 8), (12, 16)])
@torch.inference_mode()
def test_rows_that_share_blocks_are_as_if_each_read_its_own(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, num_in_graph: int
) -> None:
    """Two groups and two rows alone, in no order; the kernel of few rows or a larger graph reads shared blocks once."""
    monkeypatch.setattr(fast_runner, "WORTH_BYTES", 1)
    monkeypatch.setattr(fast_runner, "FUSED_WORTH_BYTES", 1)
    runner = make_runner("Qwen3Config", 100)
    stems = [make_sequence(0, 512, [0, 1]), make_sequence(1, 256, [2])]
    prefill(runner, stems)
    sequences = []
    for number in range(num_rows):
        stem = stems[number % 2] if number < num_rows - 2 else make_sequence(number, 0, [])
        sequence = make_sequence(number, 20 + 9 * number, [*stem.block_table, 10 + number])
        sequence.token_ids[:0] = stem.token_ids
        sequence.num_computed = len(stem.token_ids)
        sequences.append(sequence)
    prefill(runner, sequences)
    batch = decode(sequences)
    eager = runner._prompt_eager(batch).float().clone()
    found = runner._sharing(batch, num_in_graph)
    assert found is not None
    half = num_rows // 2 - 1
    assert sorted(found.groups) == [(1, 0), (1, 0), (half, 1), (half, 2)]
    ids = runner.launch(batch).wait().token_ids
    logits = torch.empty_like(eager)
    logits[found.order] = runner._graph_for(batch, num_in_graph, found).logits[:num_rows].float()
    errors = (logits - eager).norm(dim=1) / eager.norm(dim=1)
    assert float(errors.max()) < LARGEST_ERROR, errors.tolist()
    assert ids == logits.argmax(dim=1).tolist()


@torch.inference_mode()
def test_a_long_cold_prompt_is_as_if_it_went_the_common_way() -> None:
    runner = make_runner("Qwen3Config", 40)
    runner._long_prompt.warm_up(4096)
    table = list(range(20, 8, -1))
    batch = Batch()
    batch.add(make_sequence(0, 2900, table), 2900)
    assert runner._long_prompt.can_take(batch)

    def compute() -> tuple[torch.Tensor, torch.Tensor]:
        runner._cache.data.zero_()
        return runner._prompt_eager(batch).float(), runner._cache.data[:-1].float()

    ours, our_pages = compute()
    runner._long_prompt = LongPrompt(runner._weights, runner._cache)
    theirs, their_pages = compute()
    assert float((ours - theirs).norm() / theirs.norm()) < LARGEST_ERROR
    for pages in (our_pages, their_pages):  # all slots of its tokens in all layers, and none beside them
        written = pages.flatten(-2).any(-1).all((1, 2))
        assert written[table].sum() == written.sum() == 2900
        assert pages.flatten(-2).any(-1).sum() == 2900 * 2 * 3
    assert float((our_pages - their_pages).norm() / their_pages.norm()) < LARGEST_ERROR
