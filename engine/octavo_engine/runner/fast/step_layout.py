"""How the decode step's kernel shares out its work and its shared memory; the same reckoning as in the sources."""

from dataclasses import dataclass

from octavo_engine.runner.fast.weights import FastWeights

MAX_SPLITS, MAX_LEAD_SPLITS, MOST_HELD, LEAD_QUERIES, SPILLED, SEGMENT, MAX_ROWS = 16, 8, 4, 8, 6, 1024, 8
WARPS, FEEDERS = 8, 4
"""As in the sources."""
STAGE_BYTES = 8 * (2 * SEGMENT + 16)
BOX_TOKENS = 8
"""Of the cache, that one copy brings."""
MIN_DEPTH, MAX_DEPTH = 2, 16
"""Stages of the queue of weights; a warp takes the second before it gives the first back."""
STATIC_BYTES = 3 << 10
"""More than the kernel declares of static shared memory."""

PHASES = ("QKV", "attention's output", "gate and up", "down", "head")
COSTS = (
    *(f"{phase}: {cost}" for phase in PHASES for cost in ("waits for inputs", "products", "sums go out")),
    *("attention: heads", "attention: shared tokens", "attention: own tokens", "attention: merge"),
    *("feed waits: queue full", "feed waits: memory"),
)
"""Kinds of work whose clocks are counted, as clocks.cuh numbers them; those of the feed go on beside the others."""


@dataclass(frozen=True, slots=True)
class StepLayout:
    """For `num_rows` rows of a model on a device of `num_programs` multiprocessors."""

    num_rows: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_programs: int

    @classmethod
    def of(cls, w: FastWeights, num_rows: int, num_programs: int) -> "StepLayout":
        return cls(num_rows, w.num_heads, w.num_kv_heads, w.head_dim, num_programs)

    @property
    def group(self) -> int:
        """Query heads of a KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def has_leads(self) -> bool:
        """Whether rows that begin with the same blocks read them together."""
        return self.num_rows > 1 and self.group < MOST_HELD

    @property
    def team(self) -> int:
        """Warps that share a unit of attention."""
        return WARPS // 2 if self.num_rows * self.num_kv_heads > self.num_programs else WARPS

    @property
    def num_parts(self) -> int:
        """The most units that attention of one row and KV head is made of."""
        num_teams = WARPS // self.team * self.num_programs
        octets, units = -(-self.num_rows * self.group // LEAD_QUERIES), num_teams // self.num_kv_heads
        splits = min(units, MAX_SPLITS) if self.num_rows < units else 1
        leads = max(1, min(num_teams // (self.num_kv_heads * octets), MAX_LEAD_SPLITS)) if self.has_leads else 0
        return splits + leads

    @property
    def sums_bytes(self) -> int:
        """Of shared memory for sums of products, or for the heads of attention."""
        stored = max(min(self.group, MOST_HELD), 2)
        queries = max(4 * self.group * self.head_dim, 2 * LEAD_QUERIES * (self.head_dim + 4) * self.has_leads)
        head = queries + 4 * (2 * self.head_dim + self.group + self.team * stored * (2 + self.head_dim))
        return max(4 * SPILLED * WARPS * 8 * MAX_ROWS, WARPS // self.team * -(-head // 16) * 16)

    def depth(self, shared_bytes: int) -> int:
        """Stages of weights for which the rest of a block's `shared_bytes` has room."""
        return min(MAX_DEPTH, (shared_bytes - self.sums_bytes - STATIC_BYTES) // STAGE_BYTES)
