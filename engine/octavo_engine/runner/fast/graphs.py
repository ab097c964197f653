"""CUDA graphs of whole steps: one for each bucket of rows and table width, with sampling and the next ids inside."""

import torch

from octavo_engine.config import MAX_DECODE_STEPS
from octavo_engine.runner.fast.decode_attention import DecodeAttention
from octavo_engine.runner.fast.forward import Attend, forward_rows
from octavo_engine.runner.fast.graph_memory import GraphMemory
from octavo_engine.runner.fast.kernels import Advance
from octavo_engine.runner.fast.shared import SharedRows, attend_shared
from octavo_engine.runner.fast.step import FusedStep
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.filters import RowParams, draw
from octavo_engine.runner.flash import Rows, attend_paged, padded
from octavo_engine.runner.kv_cache import KVCache
from octavo_engine.runner.transfer import pinned

NUM_LOOKS = 4
"""Of the longest ones, that a graph has room for before it is filled again."""
SEVERAL = 4
"""Steps of few rows that are put into the queue at once: from graph to graph the device takes longer than inside."""


class DecodeGraph:
    """One decode step of up to `num_rows` rows over tables of `width` blocks; replayed, it goes on by itself.

    `inputs` is one int32 buffer, filled by one transfer: ids, positions, replied tokens and steps done, (rows,) each,
    then the tables, (rows, width); for a FusedStep the leads that it wants; with a `shared_width` what SharedRows
    wants, in tables of that width, and the rows' own begin after the shared blocks. Each replay appends its ids to
    `out` and moves ids and positions on. Rows that are not in use write to the scratch block, which no sequence has.
    The logits come of one kernel, or of `forward_rows` with an attention.
    """

    def __init__(
        self, w: FastWeights, cache: KVCache, num_rows: int, width: int, compute: FusedStep | DecodeAttention,
        params: RowParams | None, shared_width: int, memory: GraphMemory,
    ) -> None:  # fmt: skip
        device = cache.data.device
        self.num_rows, self.width, self.params, self.is_fused = num_rows, width, params, isinstance(compute, FusedStep)
        sizes = [num_rows] * 4 + [num_rows * width]
        sizes += [num_rows, num_rows + 1, num_rows + 1, num_rows * shared_width] if shared_width else []
        sizes += [2 * num_rows] if self.is_fused else []
        self.inputs = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        ids, positions, replied, step, tables, *more = torch.split(self.inputs, sizes)
        tables.fill_(cache.scratch_block)
        self._leads = more[0] if self.is_fused else None
        self._shared = None
        if shared_width:
            lengths, cu_rows, cu_tokens, shared_tables = more
            self._shared = SharedRows(lengths, cu_rows, cu_tokens, shared_tables.view(num_rows, shared_width))
        self._ids, self._positions, self._replied, self._tables = ids, positions, replied, tables.view(num_rows, width)
        self.out = torch.zeros(NUM_LOOKS * MAX_DECODE_STEPS, num_rows, dtype=torch.int32, device=device)
        self._state = (ids, positions, replied, step, self.out)
        self._weights, self._cache, self._compute = w, cache, compute
        self._logits = memory.logits[:num_rows]
        self._advance = Advance(num_rows, len(w.head), device)
        self._one = memory.capture(self._run)
        self._several = memory.capture(self._run_several) if self.is_fused else None

    def set_tables(self, tables: list[list[int]]) -> None:
        """Behind all steps in the device's queue, let the first rows go on over these."""
        values = [block for table in tables for block in padded(table, self.width)]
        filled = pinned(values, self._tables.device).view(len(tables), self.width)
        self._tables[: len(tables)].copy_(filled, non_blocking=True)

    def warm_up(self) -> None:
        """Take steps of idle rows: the first replay of a CUDA graph takes the longest."""
        self._one.replay()
        if self._several is not None:
            self._several.replay()
            self.set_tables(self._tables.tolist())

    def replay(self, most: int) -> int:
        """Put steps into the device's queue, 1 to `most`; returns how many."""
        if self._several is not None and most >= SEVERAL:
            self._several.replay()
            return SEVERAL
        self._one.replay()
        return 1

    def _run_several(self) -> None:
        for _ in range(SEVERAL):
            self._run()

    def _run(self) -> None:
        self.logits = self._forward()
        params = self.params
        drawn = None if params is None else draw(self.logits.float(), params, self._replied.long())
        self._advance(self.logits, drawn, self._state)

    def _forward(self) -> torch.Tensor:
        if isinstance(self._compute, FusedStep):
            assert self._leads is not None
            return self._compute(self._ids, self._positions, self._tables, self._leads)
        size = self._cache.block_size
        places = self._positions - self._shared.lengths if self._shared else self._positions
        block = self._tables.gather(1, (places // size).long()[:, None])[:, 0]
        return forward_rows(
            self._weights, self._cache, self._ids, self._positions, block * size + places % size, None,
            self._attend(self._compute, places + 1), self._logits,
        )  # fmt: skip

    def _attend(self, attention: DecodeAttention, lengths: torch.Tensor) -> Attend:
        tables, shared, scale = self._tables, self._shared, self._weights.scale
        if shared is not None:
            return lambda q, _, pages: attend_shared(q, pages, shared, lengths, tables, scale, attention)
        return lambda q, _, pages: attention(q, pages, lengths, tables)[0]


class PromptGraph:
    """One step over up to `num_rows` rows and `num_tokens` tokens together, whatever each row computes of them.

    `inputs`, int32: ids, positions and slots, (tokens,) each; cumulative query and key counts, (rows + 1,) each; the
    index of each row's last token, (rows,); the tables, (rows, width). Tokens beyond the last row are padding.
    """

    def __init__(
        self, w: FastWeights, cache: KVCache, num_tokens: int, num_rows: int, width: int, memory: GraphMemory
    ) -> None:
        self.num_tokens, self.num_rows, self.width = num_tokens, num_rows, width
        sizes = [num_tokens] * 3 + [num_rows + 1] * 2 + [num_rows, num_rows * width]
        self.inputs = torch.zeros(sum(sizes), dtype=torch.int32, device=cache.data.device)
        ids, positions, slots, cu_queries, cu_keys, last, tables = torch.split(self.inputs, sizes)
        slots.fill_(cache.scratch_block * cache.block_size)
        rows = Rows(0, last, tables.view(num_rows, width), cu_queries, cu_keys, num_tokens, width * cache.block_size)

        def run() -> None:
            self.logits = forward_rows(
                w, cache, ids, positions, slots, last,
                lambda q, fresh, pages: attend_paged(q, fresh, pages, rows, softmax_scale=w.scale),
                memory.logits[:num_rows],
            )  # fmt: skip

        self.graph = memory.capture(run)
