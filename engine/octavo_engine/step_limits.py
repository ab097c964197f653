"""How large a step may be: what is set, and less for a while after the device ran out of memory in one."""

import logging

from octavo_engine.batch import Batch

log = logging.getLogger(__name__)
NUM_CALM_STEPS = 256
"""Steps that must go well before larger ones are tried again; one that does not fit costs no more than its time."""


class StepLimits:
    """The most rows and tokens of a step; there are never fewer tokens than rows."""

    def __init__(self, num_rows: int, num_tokens: int, block_size: int) -> None:
        self.num_rows = self._most_rows = num_rows
        self.num_tokens = self._most_tokens = num_tokens
        self._block_size = block_size
        self._num_calm = 0

    def shrink(self, batch: Batch) -> bool:
        """Make the next steps smaller than this one, which did not fit; false for one row of a block or less.

        What prompts have in it is halved, down to a block; then the rows are.
        """
        rows, tokens, least = len(batch.sequences), batch.num_tokens, self._block_size
        if tokens > max(rows, least):
            self._set(self.num_rows, max(rows + (tokens - rows) // 2, least))
        elif rows > 1:
            self._set(rows // 2, max(rows // 2, tokens // 2, min(least, self.num_tokens)))
        else:
            return False
        log.warning(
            "no memory for a step of %d rows and %d tokens; the next ones have at most %d rows and %d tokens",
            rows, tokens, self.num_rows, self.num_tokens,
        )  # fmt: skip
        return True

    def relax(self) -> None:
        """A step went well; after many of them the next ones may be twice as large."""
        if self.num_rows == self._most_rows and self.num_tokens == self._most_tokens:
            return
        self._num_calm += 1
        if self._num_calm == NUM_CALM_STEPS:
            self._set(2 * self.num_rows, 2 * self.num_tokens)
            log.info("steps have at most %d rows and %d tokens again", self.num_rows, self.num_tokens)

    def _set(self, num_rows: int, num_tokens: int) -> None:
        self.num_tokens = min(num_tokens, self._most_tokens)
        self.num_rows = min(num_rows, self.num_tokens, self._most_rows)
        self._num_calm = 0


def describe_failure(batch: Batch, reason: Exception) -> str:
    """What to tell of a request whose step has no smaller one: the sizes and the remedy, in a sentence."""
    return (
        f"the device has no memory for a step of {batch.num_tokens} tokens of this request alone, which with those "
        f"before are {max(batch.context_lens)} ({reason}); free memory that other programs hold there, or set a "
        f"smaller gpu_memory_utilization or kv_cache_memory_bytes"
    )
