"""Digests find candidates, token ids decide."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.prefix_index import PrefixIndex, chain_digest, common_prefix, root_digest

A, B = (1, 2), (3, 4)
PRINT_DIGEST = (
    "from octavo_engine.prefix_index import chain_digest, root_digest;"
    "print(chain_digest(chain_digest(root_digest('model'), (1, 2)), (3, 4)).hex())"
)


def full(index: PrefixIndex, block: int, parent: bytes, tokens: tuple[int, ...]) -> bytes:
    digest = chain_digest(parent, tokens)
    index.add(block, parent, tokens, digest)
    return digest


def test_one_fingerprint_gives_equal_digests_in_processes_with_other_hash_seeds() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    own = chain_digest(chain_digest(root_digest("model"), A), B).hex()
    assert digests == [own, own]


def test_another_fingerprint_shares_nothing() -> None:
    assert chain_digest(root_digest("bfloat16"), A) != chain_digest(root_digest("float32"), A)


def test_the_same_tokens_behind_another_chain_are_another_block() -> None:
    index = PrefixIndex()
    after_a, after_b = full(index, 0, index.root, A), full(index, 1, index.root, B)
    full(index, 2, after_a, (5, 6))
    assert index.find(after_b, (5, 6), chain_digest(after_b, (5, 6))) is None
    assert index.find(after_a, (5, 6), chain_digest(after_a, (5, 6))) == 2


def test_a_digest_alone_is_no_hit() -> None:
    index = PrefixIndex()
    digest = full(index, 0, index.root, A)
    assert index.find(index.root, A, digest) == 0
    assert index.find(index.root, B, digest) is None
    assert index.find(digest, A, digest) is None


def test_the_longest_agreeing_sibling_is_found_inside_a_block() -> None:
    index = PrefixIndex()
    index.add(0, index.root, (1, 2, 9))
    index.add(1, index.root, (1, 2, 3, 4))
    index.add(2, index.root, (1,))
    assert index.find_partial(index.root, (1, 2, 3, 7)) == (1, 3)
    assert index.find_partial(index.root, (8, 8, 8, 8)) == (-1, 0)


def test_a_sibling_is_found_among_any_number_that_begin_otherwise() -> None:
    index = PrefixIndex()
    index.add(0, index.root, (1, 2, 3))
    for block in range(1, 500):
        index.add(block, index.root, (1000 + block, 2, 3))
    assert index.find_partial(index.root, (1, 2, 9)) == (0, 2)
    assert index.find_partial(index.root, ()) == (-1, 0)
    index.check_integrity()


def test_a_block_written_anew_loses_its_old_name() -> None:
    index = PrefixIndex()
    old = full(index, 0, index.root, A)
    full(index, 0, index.root, B)
    assert index.find(index.root, A, old) is None
    assert index.num_tokens(0) == 2
    index.check_integrity()


def test_a_dropped_block_leaves_nothing_behind() -> None:
    index = PrefixIndex()
    digest = full(index, 0, index.root, A)
    index.drop(0)
    assert (0 in index, index.num_tokens(0), digest in index.digests) == (False, 0, False)
    assert index.find_partial(index.root, A) == (-1, 0)
    index.check_integrity()


def test_integrity_finds_a_block_that_outlives_its_chain() -> None:
    index = PrefixIndex()
    full(index, 1, full(index, 0, index.root, A), B)
    index.check_integrity()
    index.drop(0)
    with pytest.raises(AssertionError, match="chain is broken"):
        index.check_integrity()


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_common_prefix_counts_leading_equals(a: list[int], b: list[int]) -> None:
    agree = [x == y for x, y in zip(a, b, strict=False)]
    assert common_prefix(a, b) == (agree.index(False) if False in agree else len(agree))
