"""The requests that wait for admission, served in turn across sessions."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain, zip_longest

from octavo_engine.sequence import Sequence


class WaitingQueue:
    """First come, first served inside a session; round robin over sessions, so that none starves another.

    A preempted sequence goes back to the very front: it was admitted before anything that still waits.
    """

    def __init__(self) -> None:
        self._preempted: deque[Sequence] = deque()
        self._sessions: OrderedDict[str, deque[Sequence]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._preempted) + sum(map(len, self._sessions.values()))

    def __iter__(self) -> Iterator[Sequence]:
        """All of them, in the order in which they are to be admitted."""
        yield from self._preempted
        rounds = zip_longest(*self._sessions.values())
        yield from (sequence for sequence in chain.from_iterable(rounds) if sequence is not None)

    def push(self, sequence: Sequence) -> None:
        self._sessions.setdefault(sequence.session, deque()).append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        self._preempted.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, admitted or aborted; its session goes to the end of the round."""
        if sequence in self._preempted:
            self._preempted.remove(sequence)
            return
        queue = self._sessions[sequence.session]
        queue.remove(sequence)
        if queue:
            self._sessions.move_to_end(sequence.session)
        else:
            del self._sessions[sequence.session]
