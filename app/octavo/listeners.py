"""Callbacks that want to hear of something, told in the order in which they came."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Listeners(Generic[T]):
    """A list of callbacks for facts of one kind; each must return quickly, and may leave while it is called."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[T], None]] = []

    def add(self, callback: Callable[[T], None]) -> Callable[[], None]:
        """Tell `callback` from now on. Returns the way out, which may be taken twice."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def tell(self, fact: T) -> None:
        """Call them all."""
        for callback in list(self._callbacks):
            callback(fact)
