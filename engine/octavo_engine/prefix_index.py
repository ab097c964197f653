"""Which block holds the KV of which tokens: full blocks by chained hash, and any block by its parent and its tokens."""

import hashlib
import struct
from collections.abc import KeysView, Sequence
from dataclasses import dataclass, replace

MAX_SIBLINGS_COMPARED = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """What a block holds: `tokens` after the chain `parent`; `digest` names the chain with them, None if not full."""

    parent: bytes
    tokens: tuple[int, ...]
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Match:
    """The computed prefix that a prompt finds: whole blocks, then `num_partial` slots of one more block."""

    blocks: tuple[int, ...]
    digests: tuple[bytes, ...]
    partial_block: int
    num_partial: int
    num_tokens: int

    def without_partial(self) -> "Match":
        """The same match over whole blocks only: it never needs more blocks than the sequence itself."""
        return replace(self, partial_block=-1, num_partial=0, num_tokens=self.num_tokens - self.num_partial)


def chain_digest(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The name of the chain `parent` + `tokens`: BLAKE2b, the same in every process and on every machine."""
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    return hashlib.blake2b(packed, key=parent, digest_size=32, person=b"octavo.block").digest()


def root_digest(fingerprint: str) -> bytes:
    """The parent of every first block: KV of another model, dtype or block size never shares a chain with ours."""
    return hashlib.blake2b(fingerprint.encode(), digest_size=32, person=b"octavo.root").digest()


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    """How many leading items agree; slices are compared in C, so the cost is a few comparisons, not one an item."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low + 1 < high:  # a[:low] agrees, a[:high] does not
        middle = (low + high) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle)
    return low


class PrefixIndex:
    """The blocks whose content is known. A digest only finds the candidate; the token ids decide.

    Children of one chain are found by their first token and compared newest first, at most MAX_SIBLINGS_COMPARED of
    them, which bounds the cost of a prefix that thousands of chats go on from.
    """

    def __init__(self, fingerprint: str = "") -> None:
        self.root = root_digest(fingerprint)
        self._blocks: dict[bytes, int] = {}
        self._entries: dict[int, Entry] = {}
        self._children: dict[tuple[bytes, int], dict[int, None]] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._entries

    @property
    def digests(self) -> KeysView[bytes]:
        """The names of all full blocks."""
        return self._blocks.keys()

    def num_tokens(self, block: int) -> int:
        """How many leading slots of the block somebody may still look up; 0 for a block that is not indexed."""
        entry = self._entries.get(block)
        return len(entry.tokens) if entry else 0

    def find(self, parent: bytes, tokens: tuple[int, ...], digest: bytes) -> int | None:
        """The block that holds exactly these tokens after this chain."""
        block = self._blocks.get(digest)
        return block if block is not None and self._entries[block] == Entry(parent, tokens, digest) else None

    def find_partial(self, parent: bytes, tokens: tuple[int, ...]) -> tuple[int, int]:
        """The child of `parent` that agrees longest with `tokens`, and how far; (-1, 0) when none agrees at all."""
        best, best_length = -1, 0
        siblings = self._children.get((parent, tokens[0]), {}) if tokens else {}
        for _, block in zip(range(MAX_SIBLINGS_COMPARED), reversed(siblings), strict=False):
            length = common_prefix(self._entries[block].tokens, tokens)
            if length > best_length:
                best, best_length = block, length
        return best, best_length

    def add(self, block: int, parent: bytes, tokens: tuple[int, ...], digest: bytes | None = None) -> None:
        """Say what a block holds now; only after its KV is written. A full block brings its `digest`."""
        assert digest not in self._blocks, "a digest names one block"
        if block in self._entries:
            self.drop(block)
        self._entries[block] = Entry(parent, tokens, digest)
        self._children.setdefault((parent, tokens[0]), {})[block] = None
        if digest is not None:
            self._blocks[digest] = block

    def drop(self, block: int) -> None:
        """Forget a block, because it is evicted or written anew."""
        entry = self._entries.pop(block)
        family = entry.parent, entry.tokens[0]
        siblings = self._children[family]
        del siblings[block]
        if not siblings:
            del self._children[family]
        if entry.digest is not None:
            del self._blocks[entry.digest]

    def check_integrity(self) -> None:
        """Assert that the three maps agree, and that no block outlives the one before it in its chain."""
        for block, entry in self._entries.items():
            assert block in self._children[entry.parent, entry.tokens[0]]
            assert entry.parent == self.root or entry.parent in self._blocks, "a block's chain is broken"
            assert entry.digest is None or entry.digest == chain_digest(entry.parent, entry.tokens)
            assert entry.digest is None or self._blocks[entry.digest] == block
        assert sum(map(len, self._children.values())) == len(self._entries)
        assert len(self._blocks) == sum(entry.digest is not None for entry in self._entries.values())
