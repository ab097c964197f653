"""What the keys do, and that nothing typed is ever lost."""

import pytest
from tests.app.ui_stage import Stage, stored
from textual import events
from textual.message import Message

from octavo.session import SessionState
from octavo.workspace import HostState, HostView


async def test_enter_sends_and_empties_the_composer() -> None:
    async with Stage().open() as stage:
        await stage.press(*"hi", "enter")
        assert (stage.current.asked, stage.typed) == (["hi"], "")


async def test_what_is_typed_right_behind_enter_is_of_the_next_message() -> None:
    """All in one read, as over a slow line."""
    async with Stage().open() as stage:
        for key, character in [*((char, char) for char in "hi"), ("enter", "\r"), *((char, char) for char in "and")]:
            stage.app.post_message(events.Key(key, character))
        await stage.settle()
        assert (stage.current.asked, stage.typed) == (["hi"], "and")


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j"])
async def test_these_make_a_new_line_and_do_not_send(key: str) -> None:
    async with Stage().open() as stage:
        await stage.press("a", key, "b")
        assert (stage.current.asked, stage.typed) == ([], "a\nb")


async def test_blank_text_is_not_sent() -> None:
    async with Stage().open() as stage:
        await stage.press("space", "ctrl+j", "enter")
        assert stage.current.asked == []


async def test_a_paste_of_many_lines_is_one_message_with_plain_newlines() -> None:
    async with Stage().open() as stage:
        stage.app.post_message(events.Paste("one\r\ntwo\rthree"))
        await stage.settle()
        await stage.press("enter")
        assert stage.current.asked == ["one\ntwo\nthree"]


async def test_the_composer_grows_to_eight_lines() -> None:
    async with Stage().open() as stage:
        before = stage.app.view.composer.size.height
        await stage.press(*["ctrl+j"] * 20)
        assert (before, stage.app.view.composer.size.height) == (1, 8)


async def test_escape_stops_and_keeps_what_was_said() -> None:
    async with Stage().open() as stage:
        await stage.press(*"hi", "enter")
        stage.current.say("half a")
        await stage.press("escape")
        assert stage.current.turns[0].reply == "half a"
        assert stage.current.state is SessionState.IDLE
        assert "half a" in stage.screen_text()
        assert "stopped" in stage.screen_text()


async def test_ctrl_c_stops_then_clears_then_asks_then_quits() -> None:
    stage = Stage()
    async with stage.open():
        await stage.press(*"hi", "enter")
        await stage.press(*"draft")
        await stage.press("ctrl+c")
        assert (stage.current.turns[0].status, stage.typed) == ("stopped", "draft")
        await stage.press("ctrl+c")
        assert (stage.typed, stage.app.is_running) == ("", True)
        await stage.press("ctrl+c")
        assert stage.notice == "Press ctrl+c again to quit"
        await stage.press("ctrl+c")
    assert stage.app.return_code == 0
    assert stage.workspace.is_closed


async def test_what_ctrl_c_cleared_comes_back_with_ctrl_z() -> None:
    async with Stage().open() as stage:
        await stage.press(*"abc", "ctrl+c", "ctrl+z")
        assert stage.typed == "abc"


async def test_ctrl_c_copies_a_selection_and_stops_nothing() -> None:
    async with Stage().open() as stage:
        await stage.press(*"hi", "enter")
        await stage.press(*"word", "shift+home", "ctrl+c")
        assert (stage.app.clipboard, stage.current.is_busy) == ("word", True)


async def test_ctrl_q_quits() -> None:
    stage = Stage()
    async with stage.open():
        await stage.press("ctrl+q")
    assert stage.workspace.is_closed


async def test_alt_arrows_and_clicks_switch_and_each_chat_keeps_its_draft() -> None:
    one, two = stored("One", "1", ("p", "r")), stored("Two", "2", ("p", "r"))
    async with Stage(one, two, chat_id="1").open() as stage:
        await stage.press(*"first", "alt+down")
        assert (stage.current, stage.typed) == (two, "")
        await stage.press(*"second", "alt+up")
        assert (stage.current, stage.typed) == (one, "first")
        await stage.pilot.click("#chats", offset=(5, 2))
        assert (stage.current, stage.typed) == (two, "second")
        await stage.press("alt+down")
        assert stage.current is two


async def test_a_click_never_takes_the_keys_from_the_composer() -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        for place in ("#transcript", "#chats", "#heading", "#status"):
            await stage.pilot.click(place)
            await stage.press("x")
        assert stage.typed == "xxxx"


async def test_ctrl_n_opens_a_chat_but_never_a_second_blank_one() -> None:
    async with Stage(stored("One", "1", ("p", "r"))).open() as stage:
        blank = stage.current
        await stage.press("ctrl+n")
        assert stage.current is blank
        await stage.press(*"draft", "ctrl+n")
        assert (stage.current is blank, len(stage.workspace.sessions)) == (False, 3)


async def test_ctrl_n_opens_a_fresh_chat_beside_one_whose_first_message_was_refused() -> None:
    async with Stage().open() as stage:
        refused = stage.current
        refused.refusal = ("The prompt has 9,000 tokens, the context 8,192", "Shorten it.")
        await stage.press(*"hi", "enter", "ctrl+c", "ctrl+n")
        assert (stage.current is refused, stage.banner, stage.typed) == (False, "", "")


async def test_what_was_said_of_a_chat_is_not_said_of_the_next_one() -> None:
    one, two = stored("One", "1", ("p", "r")), stored("Two", "2", ("p", "r"))
    async with Stage(one, two, chat_id="1").open() as stage:
        await stage.press(*"draft", "ctrl+c")
        assert stage.notice.startswith("Cleared")
        await stage.press("alt+down")
        assert stage.notice == ""


async def test_an_answering_chat_holds_the_next_message_back() -> None:
    async with Stage().open() as stage:
        await stage.press(*"hi", "enter")
        await stage.press(*"more", "enter")
        assert (stage.current.asked, stage.typed) == (["hi"], "more")
        assert "still answering" in stage.notice
        await stage.press("escape")
        assert stage.notice == ""


async def test_a_refused_prompt_returns_to_the_composer_with_the_reason() -> None:
    async with Stage().open() as stage:
        stage.current.refusal = ("The prompt has 9,000 tokens, the context 8,192", "Shorten it.")
        await stage.press(*"hi", "enter")
        assert stage.typed == "hi"
        assert stage.banner == "The prompt has 9,000 tokens, the context 8,192. Shorten it."
        stage.current.refusal = None
        await stage.press("enter")
        assert (stage.typed, stage.banner) == ("", "")


async def test_what_is_typed_while_a_prompt_is_refused_stays_behind_it() -> None:
    async with Stage().open() as stage:
        view = stage.app.view
        await stage.press(*"hi", "enter")
        view.composer.insert("more")  # its change is not yet known
        stage.current.draft = "hi" + stage.current.draft
        view.trouble(stage.current, "No.")
        await stage.settle()
        assert stage.typed == stage.current.draft == "himore"


async def test_without_a_host_the_reason_is_seen_and_the_text_stays() -> None:
    failed = HostView(state=HostState.FAILED, error="smollm2-135m is not here", remedy="Run: octavo models pull")
    async with Stage(host=failed).open() as stage:
        stage.current.refusal = (failed.error, failed.remedy)
        await stage.press(*"hi", "enter")
        assert stage.typed == "hi"
        assert "smollm2-135m is not here. Run: octavo models pull" in stage.screen_text()


async def test_a_crash_in_a_worker_is_reported_and_the_app_goes_on() -> None:
    async with Stage().open() as stage:
        stage.current.crash = RuntimeError("[/oops] \x1b[31m")
        await stage.press(*"hi", "enter")
        assert "Octavo itself" in stage.banner
        await stage.press("x")
        assert (stage.typed, stage.app.is_running) == ("x", True)


class Trouble(Message):
    """Something whose handler fails."""


@pytest.mark.parametrize("part", ["app", "view", "composer", "transcript", "chats"])
async def test_a_handler_that_fails_is_reported_and_the_app_goes_on(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        app, view = stage.app, stage.app.view
        pump = {"app": app, "view": view, "composer": view.composer, "transcript": view.transcript, "chats": app.chats}[
            part
        ]
        monkeypatch.setattr(type(pump), "on_trouble", lambda _: 1 / 0, raising=False)
        for _ in range(2):
            view.banner.say("")
            pump.post_message(Trouble())
            await stage.settle()
            assert "ZeroDivisionError" in stage.banner
        await stage.press("x")
        assert (stage.typed, app.is_running) == ("x", True)


async def test_a_key_whose_action_fails_is_reported_and_the_app_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        monkeypatch.setattr(stage.workspace, "new", lambda: 1 / 0)
        await stage.press("ctrl+n", "x")
        assert "ZeroDivisionError" in stage.banner
        assert (stage.typed, stage.app.is_running) == ("x", True)


async def test_the_last_reply_is_copied_and_said_to_be() -> None:
    async with Stage(stored("One", "1", ("p", "r"), ("p", "one\ud800")), chat_id="1").open() as stage:
        await stage.press("ctrl+y")
        assert (stage.app.clipboard, stage.notice) == ("one?", "Copied the last reply (4 characters)")
