"""How far a pull is, told through one callback, so that a terminal and the UI can each draw it in their way."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """What is being done now; `total_bytes` None means that nobody knows how long it takes."""

    label: str
    done_bytes: int = 0
    total_bytes: int | None = None


Progress = Callable[[Step], None]  # called several times a second, on the thread that called pull


def no_progress(_step: Step) -> None:
    """For those who do not want to know."""
