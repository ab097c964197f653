"""Rows that begin with the same blocks are found, and only they."""

from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.runner.fast.sharing import WORTH_BYTES, Sharing, find_sharing

SIZE = 4
Rows = list[tuple[list[int], int]]


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    """Tables that go on from a few stems, each with the position of its next token."""
    found, fresh = [], 1000
    stems = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=3))
    for _ in range(draw(st.integers(1, 12))):
        stem = draw(st.sampled_from(stems))
        own = draw(st.integers(1, 3))
        table = [*stem[: draw(st.integers(0, len(stem)))], *range(fresh, fresh + own)]
        fresh += own
        found.append((table, draw(st.integers((len(table) - 1) * SIZE, len(table) * SIZE - 1))))
    return found


@given(rows())
def test_a_group_shares_whole_blocks_that_all_its_rows_begin_with(found: Rows) -> None:
    tables, positions = [list(table) for table, _ in found], [position for _, position in found]
    sharing = find_sharing(tables, positions, SIZE, WORTH_BYTES, WORTH_BYTES)
    if sharing is None:
        return
    assert sorted(sharing.order) == list(range(len(tables)))
    assert sum(count for count, _ in sharing.groups) == len(tables)
    begin = 0
    for count, blocks in sharing.groups:
        members = sharing.order[begin : begin + count]
        assert len({tuple(tables[row][:blocks]) for row in members}) == 1
        assert all(positions[row] >= blocks * SIZE for row in members)
        assert blocks == 0 or count > 1
        begin += count


def test_chats_of_one_template_are_neighbours_and_others_stay_alone() -> None:
    tables = [[7, 8, 1], [5, 2], [7, 8, 3], [6, 4], [7, 8, 9]]
    sharing = find_sharing(tables, [9, 5, 10, 6, 11], SIZE, WORTH_BYTES, WORTH_BYTES)
    assert sharing == Sharing([1, 3, 0, 2, 4], [(1, 0), (1, 0), (3, 2)])
    assert sharing.shared == [0, 0, 2, 2, 2]


def test_a_row_joins_only_where_that_saves_no_less() -> None:
    long = [[1, 2, 3, 4, 10], [1, 2, 3, 4, 11]]
    sharing = find_sharing([*long, [1, 12], [1, 13]], [19, 19, 7, 7], SIZE, WORTH_BYTES, WORTH_BYTES)
    assert sharing is not None
    assert sharing.groups == [(2, 4), (2, 1)]


def test_little_to_save_is_left_alone() -> None:
    assert find_sharing([[1, 2], [1, 3]], [5, 5], SIZE, WORTH_BYTES - 1, WORTH_BYTES) is None
    assert find_sharing([[1], [2]], [1, 1], SIZE, WORTH_BYTES, WORTH_BYTES) is None


def test_the_leads_of_the_decode_kernel_are_tokens_and_the_first_row_of_each_group() -> None:
    sharing = Sharing([3, 1, 0, 2], [(1, 0), (2, 3), (1, 0)])
    assert sharing.leads(num_rows=5, block_size=SIZE) == [*[0, 12, 12, 0, 0], *[0, 1, 1, 0, 0]]


def test_the_inputs_of_a_graph_are_padded_to_its_rows() -> None:
    sharing = Sharing([1, 0, 2], [(2, 1), (1, 0)])
    tables = [[7, 8], [7, 9], [5, 6]]
    assert sharing.inputs(tables, num_rows=4, width=2, block_size=SIZE) == [
        *[4, 4, 0, 0],  # shared tokens of each row
        *[0, 2, 3, 4, 4],  # rows before each group
        *[0, 4, 5, 6, 6],  # tokens before each group; those alone have one
        *[7, 0, 0, 0, 0, 0, 0, 0],
    ]


@given(rows(), st.integers(0, 5))
def test_no_group_of_rows_is_without_keys(found: Rows, num_idle: int) -> None:
    """Given none, flash-attn 2.8 writes past the end of its weights."""
    tables, positions = [list(table) for table, _ in found], [position for _, position in found]
    sharing, num_rows = find_sharing(tables, positions, SIZE, WORTH_BYTES, WORTH_BYTES), len(tables) + num_idle
    if sharing is None:
        return
    values = sharing.inputs([tables[row] for row in sharing.order], num_rows, 8, SIZE)
    rows_before, tokens_before = (values[num_rows + i * (num_rows + 1) :][: num_rows + 1] for i in range(2))
    for begin in range(num_rows):
        num_keys = tokens_before[begin + 1] - tokens_before[begin]
        assert (num_keys > 0) == (rows_before[begin + 1] > rows_before[begin])
    assert rows_before[-1] == num_rows
