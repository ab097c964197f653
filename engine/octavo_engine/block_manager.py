"""The block tables of all sequences over the pool and the prefix index: who reads which block, who may write where."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from octavo_engine.batch import Batch
from octavo_engine.block_pool import BlockPool
from octavo_engine.prefix_index import Match, PrefixIndex, chain_digest
from octavo_engine.sequence import Sequence

COPY_SHARE = 16
"""A partial hit that must be copied is taken if it saves a 16th of a block: a whole block is moved for it."""


class BlockManager:
    """Gives sequences their blocks.

    Three laws. A block is indexed only after its KV is written (`commit`). A slot is written only by a sequence that
    alone holds the block, and never one that the index still promises: `reserve` copies such a block first. Blocks are
    released tail first, so that a chain is evicted from its tail.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        fingerprint: str = "",
        enable_prefix_caching: bool = True,
        max_pinned_share: float = 0.25,
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(fingerprint)
        self.enable_prefix_caching = enable_prefix_caching
        self.max_pinned_blocks = int(num_blocks * max_pinned_share)
        self._pins: dict[str, tuple[int, ...]] = {}
        self._num_copying = [0] * num_blocks  # holders of a block that only let it be copied, before any write

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, sequence: Sequence) -> Match:
        """The longest computed prefix of a sequence; always short of its last token, which must be computed anew."""
        return self._find(sequence.token_ids, len(sequence.token_ids) - 1)

    def can_admit(self, sequence: Sequence, match: Match, num_spare: int = 0) -> bool:
        """Whether blocks for all its tokens can be had now, the matched ones aside, so that `num_spare` are left."""
        held = [*match.blocks, match.partial_block] if match.num_partial else match.blocks
        num_revived = sum(self.pool.is_cached(block) for block in held)
        needed = self.num_blocks_for(len(sequence.token_ids)) - len(match.blocks)
        return needed + num_revived + num_spare <= self.pool.num_available

    def admit(self, sequence: Sequence, match: Match) -> list[tuple[int, int]]:
        """Build the table for all tokens of a sequence; returns the (source, destination) copies that must run first.

        The caller holds each source until the copies ran, and then gives it to `release_sources`.
        """
        assert not sequence.block_table
        table = sequence.block_table
        for block in match.blocks:
            self.pool.share(block)
            table.append(block)
        sequence.digests = list(match.digests)
        sequence.num_computed = match.num_tokens
        if match.num_partial:
            self.pool.share(match.partial_block)
            table.append(match.partial_block)
        copies = self._writable(sequence, match.num_tokens) if match.num_partial else []
        while len(table) < self.num_blocks_for(len(sequence.token_ids)):
            table.append(self._take())
        return copies

    def can_grow(self, sequence: Sequence) -> bool:
        """Whether the next token of a decoding sequence finds its slot, or a block can be had for it."""
        return self.pool.num_available > 0 or self.grows_in_place(sequence)

    def grows_in_place(self, sequence: Sequence) -> bool:
        """Whether the slot of a decoding sequence's next token is there and its own: no block, no copy is needed."""
        index, offset = divmod(sequence.num_computed, self.block_size)
        return index < len(sequence.block_table) and self._is_writable(sequence.block_table[index], offset)

    def grow(self, sequence: Sequence) -> list[tuple[int, int]]:
        """Make the slot of the next token writable, with a block from the pool; returns copies as `admit` does."""
        index = sequence.num_computed // self.block_size
        if index == len(sequence.block_table):
            sequence.block_table.append(self._take())
            return []
        return self._writable(sequence, sequence.num_computed)

    def can_extend(self, sequences: Iterable[Sequence], num_tokens: int, num_spare: int = 0) -> bool:
        """Whether these decoding sequences can all have slots for `num_tokens` more, with `num_spare` blocks left."""
        needed = sum(self._num_missing(sequence, num_tokens) for sequence in sequences)
        return needed + num_spare <= self.pool.num_available

    def extend(self, sequence: Sequence, num_tokens: int) -> None:
        """Append the blocks of a sequence's next `num_tokens` tokens; `grow` made the first slot writable."""
        for _ in range(self._num_missing(sequence, num_tokens)):
            sequence.block_table.append(self._take())

    def release_sources(self, copies: Iterable[tuple[int, int]]) -> None:
        """Let go of the sources of copies that ran."""
        for source, _ in copies:
            self._num_copying[source] -= 1
            self._release(source)

    def foresee(self, batch: Batch) -> None:
        """Hash the blocks that a batch fills while it is computed, so that `commit` need not. Idempotent."""
        if not self.enable_prefix_caching:
            return
        for sequence, end in zip(batch.sequences, batch.context_lens, strict=True):
            coming = sequence.coming
            for number in range(len(sequence.digests) + len(coming), end // self.block_size):
                parent = coming[-1] if coming else self._parent(sequence, number)
                tokens = sequence.token_ids[number * self.block_size : (number + 1) * self.block_size]
                coming.append(chain_digest(parent, tokens))

    def commit(self, sequence: Sequence, num_computed: int) -> None:
        """Say that the KV of the first `num_computed` tokens is written: blocks that became full are indexed.

        When another sequence wrote the same block first, ours is given back and theirs is used.
        """
        sequence.num_computed = num_computed
        if not self.enable_prefix_caching:
            return
        while (len(sequence.digests) + 1) * self.block_size <= num_computed:
            if not self._index_full(sequence, len(sequence.digests)):
                break

    def index_tail(self, sequence: Sequence) -> None:
        """Let others find the computed part of the sequence's last, not yet full block."""
        number = len(sequence.digests)
        start = number * self.block_size
        if self.enable_prefix_caching and start < sequence.num_computed < start + self.block_size:
            block = sequence.block_table[number]
            if self.pool.ref_counts[block] == 1:
                tokens = tuple(sequence.token_ids[start : sequence.num_computed])
                self.index.add(block, self._parent(sequence, number), tokens)

    def num_findable(self, sequence: Sequence) -> int:
        """How many leading tokens of a running sequence others surely find in the index now."""
        return max(len(sequence.digests) * self.block_size, sequence.num_cached)

    def release(self, sequence: Sequence, *, keep_tail: bool = True) -> None:
        """Give all blocks of a sequence back, its tail first; what is computed stays findable. Idempotent.

        After a step that failed nothing is known of the last block (its copy may not have run): `keep_tail` false. The
        sequence has another list from then on: who knows its blocks by the old one knows nothing any more.
        """
        if sequence.block_table and keep_tail:
            self.index_tail(sequence)
        table, sequence.block_table = sequence.block_table, []
        while table:
            self._release(table.pop())
        sequence.digests, sequence.coming = [], []
        sequence.num_computed = 0

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child`, whose tokens begin with all of a decoding parent's, share the parent's computed blocks."""
        child.num_computed = min(parent.num_computed, len(child.token_ids) - 1)
        child.block_table = parent.block_table[: self.num_blocks_for(child.num_computed)]
        child.digests = parent.digests[: child.num_computed // self.block_size]
        for block in child.block_table:
            self.pool.share(block)

    def pin(self, name: str, token_ids: list[int]) -> int:
        """Keep what is computed of a prefix from eviction, as far as the cap allows; returns how many tokens.

        Pinning the same name again replaces the pin.
        """
        self.unpin(name)
        match = self._find(token_ids, len(token_ids))
        blocks = [*match.blocks, match.partial_block] if match.num_partial else list(match.blocks)
        held = {block for pinned in self._pins.values() for block in pinned}
        while len(held.union(blocks)) > self.max_pinned_blocks:
            blocks.pop()
        for block in blocks:
            self.pool.share(block)
        self._pins[name] = tuple(blocks)
        return min(match.num_tokens, len(blocks) * self.block_size)

    def unpin(self, name: str) -> None:
        """Let a prefix go; unknown names are ignored."""
        for block in reversed(self._pins.pop(name, ())):
            self._release(block)

    def clear_cache(self) -> None:
        """Forget all that is computed and not in use."""
        for block in [b for b in range(self.pool.num_blocks) if self.pool.is_cached(b)]:
            self.index.drop(block)
            self.pool.drop(block)

    def yield_pin(self) -> bool:
        """Give up the oldest pin that frees blocks, because a request could not run otherwise; false without one."""
        holders = Counter(chain.from_iterable(self._pins.values()))
        for name, blocks in self._pins.items():
            if any(self.pool.ref_counts[block] == holders[block] for block in blocks):
                self.unpin(name)
                return True
        return False

    @property
    def num_pinned(self) -> int:
        """Blocks that pins hold."""
        return len({block for pinned in self._pins.values() for block in pinned})

    def check_integrity(self, sequences: Iterable[Sequence], copies: Iterable[tuple[int, int]] = ()) -> None:
        """Assert that the ref counts, recounted from the tables, and the index are right."""
        copies = list(copies)
        assert sum(self._num_copying) == len(copies), "a copy that ran still holds its source"
        holders = [0] * self.pool.num_blocks
        for sequence in sequences:
            for block in sequence.block_table:
                holders[block] += 1
        for block in chain.from_iterable((*self._pins.values(), (source for source, _ in copies))):
            holders[block] += 1
        self.pool.check_integrity(holders)
        self.index.check_integrity()
        assert all(block in self.index for block in range(self.pool.num_blocks) if self.pool.is_cached(block))

    def _find(self, token_ids: list[int], usable: int) -> Match:
        size = self.block_size
        blocks: list[int] = []
        digests: list[bytes] = []
        parent, partial = self.index.root, (-1, 0)
        if self.enable_prefix_caching:
            for start in range(0, usable - size + 1, size):
                tokens = tuple(token_ids[start : start + size])
                digest = chain_digest(parent, tokens)
                block = self.index.find(parent, tokens, digest)
                if block is None:
                    break
                blocks.append(block)
                digests.append(digest)
                parent = digest
            start = len(blocks) * size
            partial = self.index.find_partial(parent, tuple(token_ids[start : min(start + size, usable)]))
            if not self._is_worth_taking(*partial, usable - start):
                partial = (-1, 0)
        return Match(tuple(blocks), tuple(digests), *partial, num_tokens=len(blocks) * size + partial[1])

    def _num_missing(self, sequence: Sequence, num_tokens: int) -> int:
        """Blocks to append for so many more tokens; a step that is run again left some behind, perhaps too many."""
        return max(0, self.num_blocks_for(sequence.num_computed + num_tokens) - len(sequence.block_table))

    def _is_worth_taking(self, block: int, num_tokens: int, num_missing: int) -> bool:
        """Whether a partial hit saves enough for its copy, or all that is missing, or needs no copy at all."""
        is_own = self.pool.is_cached(block) and self.index.num_tokens(block) == num_tokens
        return is_own or num_tokens >= min(num_missing, self.block_size // COPY_SHARE)

    def _parent(self, sequence: Sequence, number: int) -> bytes:
        return sequence.digests[number - 1] if number else self.index.root

    def _index_full(self, sequence: Sequence, number: int) -> bool:
        """Index a full block, or take its twin for it; false when its digest is another chain's.

        A digest names one chain at a time, so that children of a digest are never those of other tokens.
        """
        start = number * self.block_size
        tokens = tuple(sequence.token_ids[start : start + self.block_size])
        parent, block = self._parent(sequence, number), sequence.block_table[number]
        digest = sequence.coming[0] if sequence.coming else chain_digest(parent, tokens)
        twin = self.index.find(parent, tokens, digest)
        if twin is None and digest in self.index.digests:
            return False
        if twin is None:
            self.index.add(block, parent, tokens, digest)
        elif twin != block:
            self.pool.share(twin)
            sequence.block_table[number] = twin
            self._release(block)
        sequence.digests.append(digest)
        del sequence.coming[:1]
        return True

    def _is_writable(self, block: int, offset: int) -> bool:
        is_alone = self.pool.ref_counts[block] - self._num_copying[block] == 1
        return is_alone and self.index.num_tokens(block) <= offset

    def _writable(self, sequence: Sequence, position: int) -> list[tuple[int, int]]:
        """Copy on write: the block of `position` is replaced by a copy unless it is ours alone from there on."""
        number, offset = divmod(position, self.block_size)
        source = sequence.block_table[number]
        if self._is_writable(source, offset):
            return []
        copy = self._take()
        sequence.block_table[number] = copy
        self._num_copying[source] += 1
        return [(source, copy)]

    def _take(self) -> int:
        block, is_evicted = self.pool.take()
        if is_evicted:
            self.index.drop(block)
        return block

    def _release(self, block: int) -> None:
        self.pool.release(block, keep=block in self.index)
