"""The requests that wait for admission: a person's before background work, and in turn across sessions."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain, zip_longest

from octavo_engine.sequence import Sequence

MIN_SHARED_GAIN = 16
"""A prompt waits for another's prefix in the making when that saves it at least so many tokens."""

Rounds = OrderedDict[str, deque[Sequence]]


class WaitingQueue:
    """First come, first served inside a session; round robin over sessions; lower priority numbers first.

    A preempted sequence goes before all others of its priority: it was admitted before anything that still waits.
    """

    def __init__(self) -> None:
        self._preempted: deque[Sequence] = deque()
        self._priorities: dict[int, Rounds] = {}

    def __len__(self) -> int:
        queues = chain.from_iterable(rounds.values() for rounds in self._priorities.values())
        return len(self._preempted) + sum(map(len, queues))

    def __iter__(self) -> Iterator[Sequence]:
        """All of them, in the order in which they are to be admitted."""
        for priority in sorted({*self._priorities, *(s.priority for s in self._preempted)}):
            yield from (sequence for sequence in self._preempted if sequence.priority == priority)
            rounds = zip_longest(*self._priorities.get(priority, {}).values())
            yield from (sequence for sequence in chain.from_iterable(rounds) if sequence is not None)

    def push(self, sequence: Sequence) -> None:
        rounds = self._priorities.setdefault(sequence.priority, OrderedDict())
        rounds.setdefault(sequence.session, deque()).append(sequence)

    def push_front(self, sequence: Sequence) -> None:
        self._preempted.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, admitted or aborted; a session that was served goes to the end of the round."""
        if sequence in self._preempted:
            self._preempted.remove(sequence)
            return
        rounds = self._priorities[sequence.priority]
        if rounds[sequence.session][0] is sequence:
            rounds.move_to_end(sequence.session)
        rounds[sequence.session].remove(sequence)
        if not rounds[sequence.session]:
            del rounds[sequence.session]
        if not rounds:
            del self._priorities[sequence.priority]
