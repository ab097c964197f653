"""Runs batches on CUDA: graphs for decoding and for short prompts, the same kernels without a graph for the rest."""

from bisect import bisect_left
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil

import torch

from octavo_engine.batch import Batch, PendingStep, StepOutput
from octavo_engine.config import MAX_DECODE_STEPS, MAX_ROWS_OF_STEPS
from octavo_engine.params import SamplingParams
from octavo_engine.runner.device_memory import tells_when_full
from octavo_engine.runner.fast.course import Course
from octavo_engine.runner.fast.decode_attention import choose_attention, load_ragged
from octavo_engine.runner.fast.forward import forward_rows
from octavo_engine.runner.fast.fused import load_steps
from octavo_engine.runner.fast.graph_memory import GraphMemory
from octavo_engine.runner.fast.graphs import DecodeGraph, PromptGraph
from octavo_engine.runner.fast.long_prompt import LongPrompt
from octavo_engine.runner.fast.sharing import FUSED_WORTH_BYTES, WORTH_BYTES, Sharing, find_sharing
from octavo_engine.runner.fast.step import NUM_ROWS, FusedStep
from octavo_engine.runner.fast.step_profile import Profile, step_profile
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.filters import RowParams, draw
from octavo_engine.runner.flash import attend_paged, cumulative, padded, rows_of
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.model_runner import sampling_rows
from octavo_engine.runner.sampler import Sampler
from octavo_engine.runner.transfer import download, mark, pinned, upload, upload_as
from octavo_engine.sequence import Sequence

ROW_BUCKETS = (*NUM_ROWS, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, MAX_ROWS_OF_STEPS)
TOKEN_BUCKETS = (16, 64, 128, 256, 384, 512, 576, 640, 768, 1024, 1536, 2048)
PROMPT_ROW_BUCKETS = (1, 8)
FEWEST_STEPS, LOOK_SECONDS = 16, 0.025
"""From look to look: a person sees text flow, and a look, of about a millisecond, does not count for much."""
HOST_SECONDS = 0.001
"""From the end of a look to the first step of the next on the device, where that has none ahead."""
WARM_ROWS, WARM_WIDTHS = 16, (4, 8)
"""Of prompts that are run at the start; and table widths whose graphs are captured, contexts of up to 2,048 tokens."""


def bucket(buckets: tuple[int, ...], count: int) -> int | None:
    """The smallest bucket that holds `count`; None when it is larger than all."""
    place = bisect_left(buckets, count)
    return buckets[place] if place < len(buckets) else None


class FastRunner:
    """See ModelRunner. The host looks at decoded ids every `num_decode_steps` steps, which `warm_up` measures."""

    num_decode_steps, max_decode_steps = FEWEST_STEPS, MAX_DECODE_STEPS

    def __init__(self, weights: FastWeights, cache: KVCache, sampler: Sampler, max_model_len: int) -> None:
        self.vocabulary = sampler.vocabulary
        self._weights, self._cache, self._sampler = weights, cache, sampler
        self._max_width = -(-max_model_len // cache.block_size)
        self._device = cache.data.device
        self._memory = GraphMemory(weights.head, ROW_BUCKETS[-1])
        self._decode_graphs: dict[tuple[int, int, bool, bool], DecodeGraph] = {}
        self._prompt_graphs: dict[tuple[int, int], PromptGraph] = {}
        self._course: Course | None = None
        self._most_ahead = 1
        self._long_prompt = LongPrompt(weights, cache)
        with ThreadPoolExecutor(1) as pool:
            ragged = pool.submit(load_ragged, weights, cache.block_size)  # compiled while the steps are
            self._fused = load_steps(weights, cache, self._prompt_eager)
        self._attention = choose_attention(ragged.result(), weights, cache)

    def check(self, params: SamplingParams) -> None:
        """See ModelRunner."""
        self._sampler.check(params)

    @torch.inference_mode()
    def warm_up(self, max_num_batched_tokens: int) -> None:
        """Run the largest step once and capture the graphs that the first chats need, so that none of them waits."""
        self._cache.copy([(self._cache.scratch_block, self._cache.scratch_block)])
        self._warm_prompts(min(max_num_batched_tokens, len(self._weights.cos)))
        for rows in ROW_BUCKETS:
            for width in WARM_WIDTHS:
                self._decode_graph(rows, width, True)
        for rows in self._fused or [1]:
            self._decode_graph(rows, WARM_WIDTHS[0], False)
        self._decode_graph(16, WARM_WIDTHS[0], True, shares=True)
        for graph in self._decode_graphs.values():
            graph.warm_up()
        self.launch(self._idle_batch(NUM_ROWS[-1], 0, 1)).wait()
        for tokens in TOKEN_BUCKETS:
            for rows in PROMPT_ROW_BUCKETS:
                self._prompt_graph(tokens, rows)
        step_seconds = self._seconds_a_step()
        self.num_decode_steps = max(FEWEST_STEPS, min(int(LOOK_SECONDS / step_seconds), MAX_DECODE_STEPS))
        self._most_ahead = ceil(HOST_SECONDS / step_seconds)

    def _warm_prompts(self, most_tokens: int) -> None:
        """Those beyond the graphs, a cold one and many behind a cached block: libraries load what they need at the
        first use, for each range of sizes anew."""
        self._long_prompt.warm_up(most_tokens)
        for num_tokens in (most_tokens // 2, most_tokens * 3 // 4, most_tokens):
            many = self._idle_batch(WARM_ROWS, min(self._cache.block_size, most_tokens // 2), num_tokens // WARM_ROWS)
            for batch in (many, self._idle_batch(1, 0, num_tokens)):
                self._draw(self._prompt_eager(batch), batch.sequences).wait()

    def _idle_batch(self, num_rows: int, start: int, count: int) -> Batch:
        """Rows that compute `count` tokens from `start` on, into the scratch block."""
        batch, size = Batch(), self._cache.block_size
        for _ in range(num_rows):
            sequence = Sequence("warm-up", [0] * (start + count), SamplingParams())
            sequence.block_table = [self._cache.scratch_block] * -(-(start + count) // size)
            sequence.num_computed = start
            batch.add(sequence, count)
        return batch

    def _seconds_a_step(self) -> float:
        """Of one row."""
        num_steps = 4
        graph = self._decode_graph(1, WARM_WIDTHS[0], True)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        graph.replay(1)
        begin.record()
        for _ in range(num_steps):
            graph.replay(1)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000 / num_steps

    def profile(self, tables: list[list[int]], context: int) -> Profile | None:
        """See step_profile; None where so many rows are no fused step."""
        fused, size = self._fused.get(len(tables)), self._cache.block_size
        if fused is None:
            return None
        sharing = self._sharing_of(tables, [context - 1] * len(tables), fused)
        leads = sharing.leads(len(tables), size) if sharing else [0] * 2 * len(tables)
        width = -(-context // size)
        return step_profile(self._weights, self._cache, [table[:width] for table in tables], context, leads)

    @tells_when_full
    @torch.inference_mode()
    def launch(self, batch: Batch) -> PendingStep:
        """See ModelRunner. A course is over with any other launch, which may write to blocks that were its rows'."""
        course, self._course = self._course, None
        if batch.copies:
            self._cache.copy(batch.copies)
        num_rows = bucket(ROW_BUCKETS, len(batch.sequences))
        if batch.is_decode and num_rows is not None:
            return self._launch_decode(batch, num_rows, course)
        sampling = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        logits = self._prompt(batch)
        return self._draw(logits, sampling) if sampling and is_plain(sampling) else self._sample_later(logits, sampling)

    def _launch_decode(self, batch: Batch, num_rows: int, course: Course | None) -> PendingStep:
        if course is None or not course.goes_on(batch):
            course = self._set_out(batch, num_rows)
        asked = course.ask(batch.num_steps)
        course.queue(course.num_asked)
        if not is_plain(batch.sequences):
            return self._sample_later(course.graph.logits, batch.sequences)
        pending = download(course.graph.out[asked], course.order)
        if course.graph.is_fused:
            course.queue(course.num_asked + course.num_ahead(batch.num_steps, self._most_ahead))
            self._course = course
        return PendingStep(lambda: course.told(pending.wait()))

    def _set_out(self, batch: Batch, num_rows: int) -> Course:
        """Fill a graph with a batch."""
        sharing = self._sharing(batch, num_rows)
        order = sharing.order if sharing else list(range(len(batch.sequences)))
        graph = self._graph_for(batch, num_rows, sharing)
        self._fill_decode(graph, batch, order, sharing)
        return Course.of(graph, order, batch, self._cache.block_size, len(self._weights.cos))

    def _sharing(self, batch: Batch, num_rows: int) -> Sharing | None:
        """Which rows begin alike, where a graph can make use of it and the ids are all that is wanted of it."""
        if not is_plain(batch.sequences):
            return None
        tables = [sequence.block_table for sequence in batch.sequences]
        return self._sharing_of(tables, batch.positions, self._fused.get(num_rows))

    def _sharing_of(self, tables: list[list[int]], positions: list[int], fused: FusedStep | None) -> Sharing | None:
        if fused and not fused.has_leads:
            return None
        size, layer_bytes = self._cache.block_size, self._cache.data[0, 0].nbytes
        return find_sharing(tables, positions, size, layer_bytes, FUSED_WORTH_BYTES if fused else WORTH_BYTES)

    def _draw(self, logits: torch.Tensor, sequences: list[Sequence]) -> PendingStep:
        """The host has no say in sampling: it follows in the queue, and nobody waits for more than the ids."""
        if all(s.params.temperature == 0 for s in sequences):
            return download(logits[: len(sequences)].argmax(-1)[None], range(len(sequences)))
        rows = RowParams.of(sequences, self._device, is_static=True)
        position = upload_as(torch.int64, [s.num_replied for s in sequences], self._device)
        ids = draw(logits[: len(sequences)].float(), rows, position)
        return download(ids[None], range(len(sequences)))

    def _sample_later(self, logits: torch.Tensor, sequences: list[Sequence]) -> PendingStep:
        """The forward is in the queue; the host has a say in sampling, for which it waits. Logits are overwritten by
        the next step, which is not launched before."""
        return PendingStep(partial(self._sample, logits[: len(sequences)], sequences, mark()))

    @tells_when_full
    @torch.inference_mode()
    def _sample(self, logits: torch.Tensor, sequences: list[Sequence], computed: torch.cuda.Event) -> StepOutput:
        computed.synchronize()
        return self._sampler.sample(logits, sequences) if sequences else StepOutput([])

    def _graph_for(self, batch: Batch, num_rows: int, sharing: Sharing | None = None) -> DecodeGraph:
        """Rows whose logits the host changes take the greedy graph's logits and leave its ids."""
        is_greedy = not is_plain(batch.sequences) or all(s.params.temperature == 0 for s in batch.sequences)
        return self._decode_graph(num_rows, self._width(batch, sharing), is_greedy, sharing is not None)

    def _fill_decode(self, graph: DecodeGraph, batch: Batch, order: list[int], sharing: Sharing | None) -> None:
        idle, sequences = graph.num_rows - len(order), [batch.sequences[row] for row in order]
        fill, skipped = [0] * idle, sharing.shared if sharing and not graph.is_fused else [0] * len(order)
        tables = [s.block_table for s in sequences]
        values = [batch.token_ids[row] for row in order] + fill
        values += [batch.context_lens[row] - 1 for row in order] + fill
        values += [s.num_replied for s in sequences] + fill + [0] * graph.num_rows
        for table, begin in zip(tables, skipped, strict=True):
            values += padded(table[begin:], graph.width)
        values += [self._cache.scratch_block] * (idle * graph.width)
        if graph.is_fused:
            values += sharing.leads(graph.num_rows, self._cache.block_size) if sharing else [0] * 2 * graph.num_rows
        elif sharing:
            values += sharing.inputs(tables, graph.num_rows, self._max_width, self._cache.block_size)
        graph.inputs.copy_(pinned(values, self._device), non_blocking=True)
        if graph.params is not None:
            graph.params.set(sequences)

    def _decode_graph(self, num_rows: int, width: int, is_greedy: bool, shares: bool = False) -> DecodeGraph:
        if num_rows in self._fused:
            width, shares = self._max_width, False  # its kernel reads lengths, so one graph serves all
        key = num_rows, width, is_greedy, shares
        if key not in self._decode_graphs:
            compute = self._fused.get(num_rows, self._attention)
            params = None if is_greedy else RowParams.buffers(num_rows, self._device)
            shared_width = self._max_width if shares else 0
            self._decode_graphs[key] = DecodeGraph(
                self._weights, self._cache, num_rows, width, compute, params, shared_width, self._memory
            )
        return self._decode_graphs[key]

    def _width(self, batch: Batch, sharing: Sharing | None) -> int:
        """The table width of a batch, in steps of powers of two from 4 on: a graph freezes how attention is split."""
        lengths = batch.context_lens
        if sharing:
            pairs = zip(sharing.order, sharing.shared, strict=True)
            lengths = [lengths[row] - blocks * self._cache.block_size for row, blocks in pairs]
        longest = max(lengths) + batch.num_steps - 1
        width = 4
        while width * self._cache.block_size < longest:
            width *= 2
        return min(width, max(self._max_width, 4))

    def _prompt(self, batch: Batch) -> torch.Tensor:
        """The logits of the rows that sample."""
        num_tokens = bucket(TOKEN_BUCKETS, batch.num_tokens)
        num_rows = bucket(PROMPT_ROW_BUCKETS, len(batch.sequences))
        if num_tokens is None or num_rows is None:
            return self._prompt_eager(batch)
        graph = self._prompt_graph(num_tokens, num_rows)
        self._fill_prompt(graph, batch)
        graph.graph.replay()
        return graph.logits

    def _prompt_graph(self, num_tokens: int, num_rows: int) -> PromptGraph:
        key = num_tokens, num_rows
        if key not in self._prompt_graphs:
            self._prompt_graphs[key] = PromptGraph(self._weights, self._cache, *key, self._max_width, self._memory)
        return self._prompt_graphs[key]

    def _fill_prompt(self, graph: PromptGraph, batch: Batch) -> None:
        idle_tokens, idle_rows = graph.num_tokens - batch.num_tokens, graph.num_rows - len(batch.sequences)
        scratch = self._cache.scratch_block * self._cache.block_size
        queries = cumulative(batch.query_lens + [0] * idle_rows)
        keys = cumulative(batch.context_lens + [0] * idle_rows)
        last = sampling_rows(batch)
        last += [0] * (graph.num_rows - len(last))
        tables = [block for s in batch.sequences for block in padded(s.block_table, graph.width)]
        values = [*batch.token_ids, *[0] * idle_tokens, *batch.positions, *[0] * idle_tokens]
        values += [*batch.slots(self._cache.block_size), *[scratch] * idle_tokens, *queries, *keys, *last, *tables]
        values += [self._cache.scratch_block] * (idle_rows * graph.width)
        graph.inputs.copy_(pinned(values, self._device), non_blocking=True)

    def _prompt_eager(self, batch: Batch) -> torch.Tensor:
        if self._long_prompt.can_take(batch):
            return self._long_prompt(batch)
        rows, last = rows_of(batch, self._cache.block_size, self._device), sampling_rows(batch) or [0]
        parts = batch.token_ids, batch.positions, batch.slots(self._cache.block_size), last
        ids, positions, slots, last_rows = upload(parts, self._device)
        return forward_rows(
            self._weights, self._cache, ids, positions, slots, last_rows,
            lambda q, fresh, pages: attend_paged(q, fresh, pages, rows, softmax_scale=self._weights.scale),
        )  # fmt: skip


def is_plain(sequences: Iterable[Sequence]) -> bool:
    """Whether sampling needs nothing but temperature and filters, in which the host has no say."""
    return not any(s.params.changes_logits or s.params.logprobs is not None for s in sequences)
