"""What a check finds: how it is, in one sentence, and the remedy where there is one."""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import msgspec

from octavo.errors import OctavoError


class State(StrEnum):
    """How a thing is."""

    OK = "ok"
    HINT = "hint"  # it works, but could be better
    WRONG = "wrong"  # something that must work does not


class Finding(msgspec.Struct, frozen=True):
    """One line of the report."""

    topic: str
    state: State
    text: str
    remedy: str = ""


Check = Callable[[], Finding]


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Run one after the other; one that fails is a finding, too, and the others go on."""
    for topic, check in checks:
        try:
            yield check()
        except OctavoError as error:
            yield Finding(topic, State.WRONG, error.message, error.remedy)
        except Exception as error:  # a border: the doctor must not fall ill of what it looks at
            yield Finding(topic, State.WRONG, f"This could not be looked at: {error!r}")
