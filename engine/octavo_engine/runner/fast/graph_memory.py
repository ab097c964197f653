"""Records CUDA graphs into memory that they share, and leaves torch as it was where that fails."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class GraphMemory:
    """What graphs of which one is replayed at a time share: all that is alive within a replay only, and `logits`.

    logits: (rows, vocabulary), of the last replay; whoever reads them does so before the next one is launched. They
    come of the weights `head`, (vocabulary, hidden).
    """

    def __init__(self, head: torch.Tensor, num_rows: int) -> None:
        self.logits = torch.empty(num_rows, len(head), dtype=head.dtype, device=head.device)
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Run a function once to warm it up (kernels compile, libraries allocate), then record it.

        Raises what that raises; nothing is being captured any more then.
        """
        before = torch.cuda.current_stream()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(before)
        try:
            with torch.cuda.stream(stream):
                function()
        finally:
            before.wait_stream(stream)  # also what failed may have work in its queue, on memory that is free now
        graph = torch.cuda.CUDAGraph()
        try:
            with no_collection(), torch.cuda.graph(graph, pool=self._pool):
                function()
        except BaseException:
            self._abandon(before)
            raise
        return graph

    def _abandon(self, before: torch.cuda.Stream) -> None:
        """Where CUDA does not let torch end a capture, torch leaves its stream the current one and, up to 2.11, the
        pool taken: all that is allocated would go there, and no other graph could be captured."""
        torch.cuda.set_stream(before)
        try:
            torch._C._cuda_endAllocateToPool(before.device_index, self._pool)
        except RuntimeError:
            return  # torch ended it
        self._pool = torch.cuda.graph_pool_handle()  # pinned memory has its own part of the old one, still taken


@contextmanager
def no_collection() -> Iterator[None]:
    """Python collects no garbage: the graphs of an engine that is gone, if there are any, would spoil a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
