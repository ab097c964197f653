"""How values become columns: token ids as bytes, text that SQLite accepts, new ids, and the time."""

import sys
import time
from array import array
from collections.abc import Sequence

ID_BYTES = 4


def pack_ids(token_ids: Sequence[int]) -> bytes:
    """Token ids as unsigned 32-bit little-endian integers; an id outside 0..2**32-1 raises OverflowError."""
    return _little_endian(array("I", token_ids)).tobytes()


def unpack_ids(blob: bytes) -> list[int]:
    """The token ids that `pack_ids` packed."""
    ids = array("I")
    ids.frombytes(blob)
    return _little_endian(ids).tolist()


def clean_text(text: str) -> str:
    """The text itself, with U+FFFD for each lone surrogate (what argv and stdin make of undecodable bytes).

    A surrogate pair becomes the character that it stands for.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def new_id() -> str:
    """A ULID in lower case; ids of one process are in the order in which they were made."""
    from ulid import ULID  # late: importing it takes 40 ms, and a reader makes no ids

    return str(ULID()).lower()


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def _little_endian(ids: "array[int]") -> "array[int]":
    assert ids.itemsize == ID_BYTES, f"a C unsigned int of {ids.itemsize} bytes"
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
