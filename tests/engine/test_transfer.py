"""Ints on their way to the device."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo_engine.runner.transfer import upload

LISTS = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), min_size=1, max_size=5)


@given(LISTS)
def test_lists_arrive_as_they_are_each_at_a_multiple_of_16_bytes(parts: list[list[int]]) -> None:
    """Also a list behind one of an odd length, and the empty one."""
    tensors = upload(parts, torch.device("cpu"))
    assert [tensor.tolist() for tensor in tensors] == parts
    assert all(tensor.dtype == torch.int32 for tensor in tensors)
    first = tensors[0].untyped_storage().data_ptr()
    assert all((tensor.data_ptr() - first) % 16 == 0 for tensor in tensors if len(tensor))
