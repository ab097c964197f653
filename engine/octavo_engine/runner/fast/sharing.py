"""Which decoding rows begin with the same blocks, so that their attention can read those once, not once a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from octavo_engine.prefix_index import common_prefix
from octavo_engine.runner.flash import cumulative, padded

WORTH_BYTES, FUSED_WORTH_BYTES = 64 << 20, 32 << 20
"""Keys and values of one layer that must be saved: the second part costs some 20 us a layer, which read so much; inside
the decode kernel it is one more unit of work, with its waits some 5 us."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Rows in an `order` in which those of a group are neighbours; `groups` has each one's rows and shared blocks.

    A row alone shares nothing.
    """

    order: list[int]
    groups: list[tuple[int, int]]

    @property
    def shared(self) -> list[int]:
        """Each row's shared blocks, in the order."""
        return [blocks for count, blocks in self.groups for _ in range(count)]

    def leads(self, num_rows: int, block_size: int) -> list[int]:
        """What FusedStep wants, for `num_rows` rows of which the last are idle."""
        idle = [0] * (num_rows - len(self.order))
        tokens, firsts = [blocks * block_size for blocks in self.shared], list[int]()
        for count, blocks in self.groups:
            firsts += [len(firsts) if blocks else 0] * count
        return tokens + idle + firsts + idle

    def inputs(self, tables: Sequence[list[int]], num_rows: int, width: int, block_size: int) -> list[int]:
        """What SharedRows wants, for `num_rows` rows of which the last are idle; `tables` in the order.

        A row alone meets one token of block 0, which counts nothing: given no keys at all, flash-attn 2.8 writes their
        weight to a place beyond its result (vllm-project/flash-attention, pull request 139).
        """
        idle = num_rows - len(self.order)
        groups = [*self.groups, *[(1, 0)] * idle]
        groups += [(0, 0)] * (num_rows - len(groups))
        firsts = list(accumulate((count for count, _ in self.groups), initial=0))
        values = [*(blocks * block_size for blocks in self.shared), *[0] * idle]
        values += cumulative([count for count, _ in groups])
        values += cumulative([blocks * block_size or min(count, 1) for count, blocks in groups])
        for first, (_, blocks) in zip(firsts, self.groups, strict=False):
            values += padded(tables[first][:blocks], width)
        return values + [0] * ((num_rows - len(self.groups)) * width)


def find_sharing(
    tables: Sequence[list[int]], positions: Sequence[int], block_size: int, block_bytes: int, worth_bytes: int
) -> Sharing | None:
    """The groups of rows over block `tables`, a list a row, whose new tokens are at `positions`.

    Only whole blocks before a row's position count. None where less than `worth_bytes` would be saved; `block_bytes`
    are the keys and values of one layer in a block.
    """
    if len({table[0] for table in tables}) == len(tables):
        return None
    order = sorted(range(len(tables)), key=tables.__getitem__)
    groups = _groups([tables[row][: positions[row] // block_size] for row in order])
    saved = sum((count - 1) * blocks for count, blocks in groups)
    return Sharing(order, groups) if saved * block_bytes >= worth_bytes else None


def _groups(prefixes: Sequence[list[int]]) -> list[tuple[int, int]]:
    """Rows and shared blocks of neighbours; one more joins where the group then saves no less than before."""
    groups: list[tuple[int, list[int]]] = []
    for prefix in prefixes:
        count, common = groups[-1] if groups else (0, [])
        agreed = common_prefix(common, prefix)
        if agreed and agreed * count >= len(common) * (count - 1):
            groups[-1] = count + 1, common[:agreed]
        else:
            groups.append((1, prefix))
    return [(count, len(common) if count > 1 else 0) for count, common in groups]
