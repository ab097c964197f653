"""Laws of the transcript: hidden chats draw nothing, only visible lines are made, and it never jumps."""

import pytest
from tests.app.ui_fakes import READY, FakeSession
from tests.app.ui_stage import Stage, stored

from octavo.session import SessionState
from octavo.ui.transcript import Transcript
from octavo.ui.turn_block import TurnBlock
from octavo.workspace import HostState, HostView

NASTY = "[/bold] [red]x[/] \x1b[31mred \x07\x00 [@click=app.quit]q[/]"
LONG = "\n\n".join(f"Paragraph {number} of a long reply." for number in range(60))


def transcript(stage: Stage) -> Transcript:
    return stage.app.view.transcript


async def test_both_chats_answer_while_one_is_shown() -> None:
    one, two = stored("One", "1", ("p", "r")), stored("Two", "2", ("p", "r"))
    async with Stage(one, two, chat_id="1").open() as stage:
        await stage.press(*"first", "enter", "alt+down", *"second", "enter")
        one.say("from the first")
        two.say("from the second")
        await stage.settle()
        assert "from the second▍" in stage.screen_text()
        one.end()
        await stage.settle()
        assert "new reply" in stage.screen_text()
        await stage.press("alt+up")
        assert "from the first" in stage.screen_text()
        assert "new reply" not in stage.screen_text()


async def test_a_hidden_chat_does_not_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = stored("One", "1", ("p", "r")), stored("Two", "2", ("p", "r"))
    async with Stage(one, two, chat_id="1").open() as stage:
        two.begin("p")
        two.say("a")
        await stage.settle()
        frames: list[None] = []
        monkeypatch.setattr(stage.app, "_draw", lambda: frames.append(None))
        for _ in range(20):
            two.say("b")
        await stage.settle()
        assert frames == []
        assert two.turns[-1].reply == "a" + 20 * "b"


async def test_a_burst_of_text_is_drawn_in_few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        stage.current.begin("p")
        frames: list[None] = []
        draw = stage.app._draw

        def counted() -> None:
            frames.append(None)
            draw()

        monkeypatch.setattr(stage.app, "_draw", counted)
        for _ in range(200):
            stage.current.say("word ")
        await stage.settle()
        assert 1 <= len(frames) <= 3
        assert transcript(stage)._blocks[-1].reply.text == 200 * "word "


async def test_a_process_that_was_held_up_draws_the_next_frame_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        stage.current.begin("p")
        # Of the clock of Textual's timers, each look at which comes a second later. Not for ever: one that is never in
        # time (the cursor's) would go on without a pause, and nobody else would have a turn.
        late = iter(range(1, 200))
        with monkeypatch.context() as patch:
            patch.setattr("textual.timer._time.get_time", lambda: float(next(late, 200)))
            stage.app._frames.draw()
            stage.current.say("words")  # so soon after a frame they wait for the next one
            await stage.settle()
        assert transcript(stage)._blocks[-1].reply.text == "words"


async def test_only_visible_lines_are_drawn() -> None:
    chat = stored("Long", "1", *[("p", LONG)] * 50)
    async with Stage(chat, chat_id="1").open() as stage:
        blocks = transcript(stage)._blocks
        drawn = sum(len(block._strips) for block in blocks)
        assert sum(block.height for block in blocks) > 5000
        assert 0 < drawn < 60


async def test_it_follows_the_end_only_while_it_is_there() -> None:
    async with Stage(stored("Long", "1", ("p", LONG)), chat_id="1").open() as stage:
        view = transcript(stage)
        await stage.press(*"hi", "enter")
        stage.current.say("line\n" * 30)
        await stage.settle()
        assert view.scroll_y == view.max_scroll_y
        await stage.press("pageup")
        seen = view.scroll_y
        stage.current.say("line\n" * 30)
        await stage.settle()
        stage.current.end()
        await stage.settle()
        assert view.scroll_y == seen < view.max_scroll_y
        await stage.press("end")
        assert view.scroll_y == view.max_scroll_y


async def test_it_does_not_jump_when_a_reply_is_done() -> None:
    async with Stage(stored("Long", "1", ("p", LONG)), chat_id="1").open() as stage:
        view = transcript(stage)
        stage.current.begin("p")
        stage.current.say("the end")
        await stage.settle()
        before = (view.scroll_y, view.virtual_size)
        stage.current.end()
        await stage.settle()
        assert (view.scroll_y, view.virtual_size) == before


async def test_each_chat_keeps_its_place() -> None:
    one, two = stored("One", "1", ("p", LONG)), stored("Two", "2", ("p", LONG))
    async with Stage(one, two, chat_id="1").open() as stage:
        view = transcript(stage)
        await stage.press("ctrl+home", "pagedown")
        place = view.scroll_y
        await stage.press("alt+down")
        assert view.scroll_y == view.max_scroll_y
        await stage.press("alt+up")
        assert view.scroll_y == place > 0


async def test_a_resize_keeps_the_text_in_view() -> None:
    chat = stored("Long", "1", ("p", "\n\n".join(f"{number} " + "many words " * 30 for number in range(40))))
    async with Stage(chat, chat_id="1").open() as stage:
        await stage.press("ctrl+home", "pagedown", "pagedown")
        view = transcript(stage)
        index, _, offset = view._anchor()
        await stage.pilot.resize_terminal(50, 14)
        await stage.settle()
        row = (
            transcript(stage)
            ._blocks[index]
            .reply.rows[transcript(stage)._find(transcript(stage).scroll_offset.y)[1] - 4]
        )
        assert row.start <= offset < row.end + 2
        assert transcript(stage).virtual_size.width == transcript(stage).scrollable_content_region.width


@pytest.mark.parametrize("size", [(40, 12), (20, 6), (4, 3), (60, 16), (200, 50)])
async def test_it_works_at_any_size(size: tuple[int, int]) -> None:
    async with Stage(stored("One", "1", ("p", LONG), ("漢字" * 50, "🙂" * 90)), chat_id="1").open(*size) as stage:
        await stage.press(*"hi", "enter")
        stage.current.say("```\n" + "code " * 40)
        await stage.settle()
        await stage.press("pageup")
        for width, height in [(100, 30), (1, 1), size]:
            await stage.pilot.resize_terminal(width, height)
            await stage.settle()
        stage.current.say("more")
        await stage.press("alt+down", "alt+up", "x")
        assert (stage.app.is_running, stage.typed) == (True, "x")


async def test_text_of_users_and_models_is_never_markup_and_never_control() -> None:
    chat = FakeSession(NASTY, "1")
    chat.add_turn(NASTY, NASTY, "failed", NASTY)
    host = HostView(state=HostState.FAILED, model=NASTY, error=NASTY, remedy=NASTY)
    async with Stage(chat, host=host, chat_id="1").open(160, 30) as stage:
        shown = stage.screen_text()
        assert shown.count("[/bold] [red]x[/] ␛[31mred ␇␀ [@click=app.quit]q[/]") >= 5
        assert not any(ord(character) < 32 for character in shown.replace("\n", ""))
        await stage.pilot.hover("#chats", offset=(5, 0))
        stage.app.keys.say(NASTY)
        await stage.settle()
        assert "[@click=app.quit]q[/]" in stage.screen_text().splitlines()[-1]


async def test_a_selection_is_copied_without_labels_and_breaks_of_wrapping() -> None:
    words = " ".join(f"word{number}" for number in range(40))
    async with Stage(stored("One", "1", ("my prompt", words)), chat_id="1").open(60, 24) as stage:
        await stage.pilot.mouse_down("#transcript", offset=(2, 1))
        await stage.pilot.hover("#transcript", offset=(30, 12))
        await stage.pilot.mouse_up("#transcript", offset=(30, 12))
        await stage.press("ctrl+c")
        assert stage.app.clipboard == f"my prompt\n\n{words}"


async def test_a_refused_turn_leaves_the_transcript() -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        stage.current.refusal = ("Too long", "Shorten it.")
        await stage.press(*"hi", "enter")
        assert len(transcript(stage)._blocks) == 1
        assert stage.current.state is SessionState.FAILED


async def test_turns_read_anew_replace_what_is_shown() -> None:
    async with Stage(stored("One", "1", ("p", "old")), chat_id="1").open() as stage:
        stage.current._fake_turns.clear()
        stage.current.add_turn("p", "other")
        stage.current.set_state(SessionState.IDLE)
        await stage.settle()
        assert "other" in stage.screen_text()
        assert "old" not in stage.screen_text()


async def test_states_and_figures_are_words() -> None:
    async with Stage(stored("One", "1", ("p", "r")), chat_id="1").open() as stage:
        stage.workspace.set_host(HostView(state=HostState.LOADING, model="smollm2-135m"))
        stage.current.begin("p")
        await stage.settle()
        assert "loading model…" in stage.screen_text()
        assert "waiting for the model…" in stage.screen_text()
        assert "queued" in stage.screen_text()
        stage.workspace.set_host(READY)
        stage.current.rate = 38.24
        stage.current.say("hello")
        await stage.settle()
        assert "answering" in stage.screen_text()
        assert "38.2 tok/s" in stage.screen_text()
        assert "412 tok cached" in stage.screen_text()
        stage.current.end()
        await stage.settle()
        assert "412/430 tok cached" in stage.screen_text()
        await stage.until(lambda: "48/512 blocks" in stage.screen_text())


def test_a_block_takes_over_only_what_is_new() -> None:
    session = FakeSession()
    turn = session.begin("p")
    block = TurnBlock(turn, 40, "queued…")
    assert block.height == 6
    turn.reply = "one\r"
    assert block.sync("") == 4
    assert (block.height, block.reply.text) == (6, "one")
    turn.reply += "\ntwo"
    block.sync("")
    assert block.reply.text == "one\ntwo"
    assert block.sync("") == block.height == 7
