"""CUDA graphs of whole steps: one for each bucket of rows and table width, with sampling and the next ids inside."""

from collections.abc import Callable
from typing import Any

import torch

from octavo_engine.config import MAX_DECODE_STEPS
from octavo_engine.runner.fast.forward import forward_rows
from octavo_engine.runner.fast.kernels import Advance
from octavo_engine.runner.fast.step import FusedStep
from octavo_engine.runner.fast.weights import FastWeights
from octavo_engine.runner.filters import RowParams, draw
from octavo_engine.runner.flash import Rows, attend_paged
from octavo_engine.runner.kv_cache import KVCache

Pool = Any
"""What torch.cuda.graph_pool_handle gives."""


def capture(function: Callable[[], None], pool: Pool) -> torch.cuda.CUDAGraph:
    """Run a function once to warm it up (kernels compile, libraries allocate), then record it."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        function()
    return graph


class DecodeGraph:
    """One decode step of up to `num_rows` rows over tables of `width` blocks; replayed, it goes on by itself.

    `inputs` is one int32 buffer, filled by one transfer: ids, positions, replied tokens and steps done, (rows,) each,
    then the tables, (rows, width). Each replay appends its ids to `out` and moves ids and positions on. Rows that are
    not in use write to the scratch block, which no sequence has. With `fused`, the persistent kernel computes it all.
    """

    def __init__(
        self, w: FastWeights, cache: KVCache, num_rows: int, width: int, fused: FusedStep | None,
        params: RowParams | None, pool: Pool,
    ) -> None:  # fmt: skip
        device = cache.data.device
        self.num_rows, self.width, self.params = num_rows, width, params
        self.inputs = torch.zeros(num_rows * (4 + width), dtype=torch.int32, device=device)
        self.inputs[4 * num_rows :] = cache.scratch_block
        ids, positions, replied, step, tables = torch.split(self.inputs, [num_rows] * 4 + [num_rows * width])
        self._ids, self._positions, self._replied, self._tables = ids, positions, replied, tables.view(num_rows, width)
        self.out = torch.zeros(MAX_DECODE_STEPS, num_rows, dtype=torch.int32, device=device)
        self._state = (ids, positions, replied, step, self.out)
        self._weights, self._cache, self._fused = w, cache, fused
        self._advance = Advance(num_rows, len(w.head), device)
        self.graph = capture(self._run, pool)

    def _run(self) -> None:
        self.logits = self._forward()
        params = self.params
        drawn = None if params is None else draw(self.logits.float(), params, self._replied.long())
        self._advance(self.logits, drawn, self._state)

    def _forward(self) -> torch.Tensor:
        if self._fused is not None:
            return self._fused(self._ids, self._positions, self._tables)
        size = self._cache.block_size
        block = self._tables.gather(1, (self._positions // size).long()[:, None])[:, 0]
        lengths = self._positions + 1
        rows = Rows(self.num_rows, lengths, self._tables, lengths, lengths, 0, 0)
        return forward_rows(
            self._weights, self._cache, self._ids, self._positions, block * size + self._positions % size, None,
            lambda q, fresh, pages: attend_paged(q, fresh, pages, rows, softmax_scale=self._weights.scale),
        )  # fmt: skip


class PromptGraph:
    """One step over up to `num_rows` rows and `num_tokens` tokens together, whatever each row computes of them.

    `inputs`, int32: ids, positions and slots, (tokens,) each; cumulative query and key counts, (rows + 1,) each; the
    index of each row's last token, (rows,); the tables, (rows, width). Tokens beyond the last row are padding.
    """

    def __init__(self, w: FastWeights, cache: KVCache, num_tokens: int, num_rows: int, width: int, pool: Pool) -> None:
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
            )  # fmt: skip

        self.graph = capture(run, pool)
