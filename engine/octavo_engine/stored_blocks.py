"""Which blocks lie on disk, and which of them a prompt goes through."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import count

from octavo_engine.block_manager import COPY_SHARE
from octavo_engine.prefix_index import PrefixIndex, chain_digest


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block that outlives the pool: `tokens` after the chain `parent`, with `depth` blocks before it.

    `name` is the chained digest that ends with these tokens, also where they do not fill the block.
    """

    name: bytes
    parent: bytes
    tokens: tuple[int, ...]
    depth: int

    @property
    def is_sound(self) -> bool:
        """Whether the name is that of these tokens after this parent."""
        return bool(self.tokens) and self.name == chain_digest(self.parent, self.tokens)


def chain_blocks(root: bytes, token_ids: SequenceOf[int], block_size: int) -> list[StoredBlock]:
    """The blocks that hold these tokens; the last one may not be full."""
    blocks: list[StoredBlock] = []
    for start in range(0, len(token_ids), block_size):
        parent, tokens = blocks[-1].name if blocks else root, tuple(token_ids[start : start + block_size])
        blocks.append(StoredBlock(chain_digest(parent, tokens), parent, tokens, len(blocks)))
    return blocks


class StoredBlocks:
    """The index of what lies on disk under one fingerprint, held in memory: it is asked at each admission."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._index = PrefixIndex()
        self._blocks: dict[int, StoredBlock] = {}
        self._numbers: dict[bytes, int] = {}
        self._next = count()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, name: bytes) -> bool:
        return name in self._numbers

    def add(self, block: StoredBlock) -> None:
        """A block lies on disk now; one that is known already is left as it is."""
        if block.name in self._numbers:
            return
        number = self._numbers[block.name] = next(self._next)
        self._blocks[number] = block
        is_full = len(block.tokens) == self._size
        self._index.add(number, block.parent, block.tokens, block.name if is_full else None)

    def drop(self, name: bytes) -> None:
        """A block lies there no longer; unknown names are ignored."""
        number = self._numbers.pop(name, None)
        if number is not None:
            del self._blocks[number]
            self._index.drop(number)

    def chain(self, parent: bytes, token_ids: SequenceOf[int], start: int, usable: int) -> list[StoredBlock]:
        """The blocks that go on from `parent`, the digest of the `start` tokens before, over ids up to `usable`.

        The last of them may hold other tokens behind those that the prompt shares with it.
        """
        found: list[StoredBlock] = []
        for first in range(start, usable - self._size + 1, self._size):
            tokens = tuple(token_ids[first : first + self._size])
            number = self._index.find(parent, tokens, digest := chain_digest(parent, tokens))
            if number is None:
                break
            found.append(self._blocks[number])
            parent = digest
        first = start + len(found) * self._size
        rest = tuple(token_ids[first : min(first + self._size, usable)])
        number, length = self._index.find_partial(parent, rest)
        if length and length >= min(len(rest), self._size // COPY_SHARE):
            found.append(self._blocks[number])
        return found
