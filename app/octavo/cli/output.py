"""How commands print: JSON, columns, and text of others without the control characters that could drive a terminal."""

import sys
from collections.abc import Sequence
from datetime import datetime

import msgspec

# C0 without tab and newline, DEL, C1: a model or a title must not move the cursor or set the clipboard
_CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])


def plain(text: str) -> str:
    """`text` without control characters other than tab and newline."""
    return text.translate(_CONTROLS)


def print_json(value: object, *, indent: int = 2) -> None:
    """One JSON document and a newline on stdout; on one line with `indent` -1."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=indent).decode() + "\n")


def print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns on stdout; the last one is left as long as it is."""
    cells = [[" ".join(plain(cell).split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(line.rstrip() + "\n")


def local_time(epoch_ms: int) -> str:
    """A time of the store for people."""
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def size(num_bytes: int) -> str:
    """A size for people."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"
