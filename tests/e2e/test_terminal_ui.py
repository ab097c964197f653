"""The terminal UI in a real terminal, over the real default model: what a person sees and does."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.conftest import Home
from tests.e2e.terminal import Terminal

from octavo_data import TurnStatus

pytestmark = [pytest.mark.model, pytest.mark.slow]

SEA = "Write a very long story about a lighthouse keeper and the sea."
WOODS = "Write a very long story about a fox and the woods."
HILLS = "Write a very long story about a shepherd and the hills."
Open = Callable[..., Terminal]


def letters(text: str) -> str:
    """Text as it can be found on a screen, which breaks lines where it likes."""
    return "".join(filter(str.isalnum, text))


def list_of(screen: str) -> str:
    """The list of chats, at the left of the screen."""
    return "\n".join(line[:28] for line in screen.splitlines())


def view_of(screen: str) -> str:
    """The chat in view, at the right of the list, without the lines at the bottom."""
    return "\n".join(line[28:] for line in screen.splitlines()[:-2])


def is_in_view(text: str) -> Callable[[str], bool]:
    return lambda screen: letters(text) in letters(view_of(screen))


def num_answering(screen: str) -> int:
    return list_of(screen).count("answering")


def test_two_chats_answer_at_once_and_outlive_the_ui(home: Home, open_terminal: Open) -> None:
    terminal = open_terminal(home)
    terminal.until_shown("ready", "Write a message")
    for question in (SEA, WOODS):
        terminal.press("ctrl+n", question, "enter")
        terminal.until(is_in_view(f"You {question} Octavo"))
    terminal.until(lambda screen: num_answering(screen) == 2)

    first = home.until(lambda turns: bool(turns[SEA].reply and turns[WOODS].reply))
    second = home.until(lambda turns: all(len(turns[q].reply) > len(first[q].reply) for q in (SEA, WOODS)))
    assert {second[question].status for question in (SEA, WOODS)} == {TurnStatus.RUNNING}
    terminal.until(is_in_view(second[WOODS].reply[:60]))
    terminal.press("alt+down")
    terminal.until(is_in_view(second[SEA].reply[:60]))
    os.kill(terminal.pid, signal.SIGKILL)
    assert terminal.wait() == -signal.SIGKILL

    again = open_terminal(home)
    again.until_shown("ready", "Write a very long")
    again.press("alt+down")
    again.until(is_in_view(second[WOODS].reply[:60]))
    again.press("alt+down")
    again.until(is_in_view(second[SEA].reply[:60]))
    ended = home.until(lambda turns: all(turns[q].status is TurnStatus.DONE for q in (SEA, WOODS)))
    for question in (SEA, WOODS):
        assert ended[question].reply.startswith(second[question].reply)
    again.until(is_in_view(ended[SEA].reply[-60:]))
    again.until(lambda screen: num_answering(screen) == 0)
    again.press("ctrl+q")
    assert again.wait() == 0


def test_switching_stops_nothing_and_esc_keeps_what_was_said(home: Home, open_terminal: Open) -> None:
    terminal = open_terminal(home)
    terminal.until_shown("ready", "Write a message")
    terminal.press(HILLS, "enter")
    terminal.until(lambda screen: num_answering(screen) == 1)
    terminal.press("half a thought")
    terminal.until(is_in_view("half a thought"))
    terminal.press("ctrl+n")
    terminal.until_shown("Type a message below", "Write a message")
    hidden = home.until(lambda turns: bool(turns[HILLS].reply))[HILLS]
    home.until(lambda turns: len(turns[HILLS].reply) > len(hidden.reply))
    terminal.until(lambda screen: num_answering(screen) == 1)

    terminal.click("Write a very long")
    terminal.until(is_in_view("half a thought"))
    terminal.until(is_in_view(hidden.reply[:60]))
    terminal.press("escape")
    terminal.until_shown("stopped", "half a thought")
    terminal.until(lambda screen: num_answering(screen) == 0)
    stopped = home.until(lambda turns: turns[HILLS].status is not TurnStatus.RUNNING)[HILLS]
    assert stopped.status is TurnStatus.STOPPED
    assert stopped.reply.startswith(hidden.reply)
    terminal.until(is_in_view(stopped.reply[-60:]))


def test_the_process_of_the_ui_has_no_torch(home: Home, open_terminal: Open) -> None:
    terminal = open_terminal(home)
    terminal.until_shown("ready", "Write a message")
    terminal.press("Say hello.", "enter")
    terminal.until(lambda screen: "tok/s" in screen and num_answering(screen) == 0)
    assert "libtorch" not in Path(f"/proc/{terminal.pid}/maps").read_text()
    assert "libtorch" in Path(f"/proc/{home.host_pid}/maps").read_text()


@pytest.fixture
def bare_home() -> Iterator[Home]:
    """A home without a model."""
    with tempfile.TemporaryDirectory(prefix="oct-") as folder:
        yield Home(Path(folder))


def test_without_a_model_it_opens_says_what_to_do_and_keeps_what_is_typed(bare_home: Home, open_terminal: Open) -> None:
    terminal = open_terminal(bare_home)
    terminal.until(is_in_view("octavo models pull smollm2-135m"))
    terminal.press("What is the capital of France?", "enter")
    terminal.until(lambda screen: "failed" in list_of(screen))
    terminal.until(is_in_view("What is the capital of France?"))
    terminal.until_shown("is not on this machine")
    terminal.press("ctrl+q")
    assert terminal.wait() == 0
    assert bare_home.last_turns() == {}


def test_a_paste_with_escapes_stays_text_and_what_was_not_sent_is_told_at_the_end(
    home: Home, open_terminal: Open
) -> None:
    terminal = open_terminal(home)
    terminal.until_shown("Write a message")
    terminal.press("\x1b[200~log: \x1b[1mbold\x1b[0m\rsecond line\x1b[201~")
    terminal.until_shown("log: [1mbold[0m", "second line")
    assert not any("log:" in prompt for prompt in home.last_turns())
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert "octavo: not sent in New chat:" in terminal.screen
