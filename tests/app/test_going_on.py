"""Which model a chat goes on with: its own if it is here, else the current one, and that is said in one line."""

import pytest
from tests.app.host_stage import LONG, SLOW, HostStage, until
from tests.app.ui_stage import Stage, stored

from octavo.config import Settings
from octavo.going_on import GoingOn, going_on
from octavo.paths import Paths
from octavo.session import Change, Noticed, Session, TextAppended
from octavo.workspace import HostState, HostView, Workspace

CURRENT, OTHER = "echo:1", "echo:2"
GONE = "hf:Nobody/Nothing"


async def begin_chat(stage: HostStage, model: str, prompt: str = "One.") -> str:
    """A chat that was begun with another model, elsewhere."""
    client = await stage.connect(model)
    reply = client.submit(prompt)
    accepted = await reply.accepted()
    if prompt == "One.":
        assert "".join([text async for text in reply.text()]) == "One."
    return accepted.chat_id or ""


async def ask(session: Session, prompt: str) -> None:
    await session.ask(prompt)
    await until(lambda: not session.is_busy)


def models_of(stage: HostStage, chat_id: str) -> list[str]:
    with stage.store() as store:
        return [turn.model for turn in store.turns(chat_id)]


def test_a_new_chat_and_one_of_the_current_model_go_on_without_a_word(paths: Paths) -> None:
    settings = Settings(model=CURRENT)
    assert going_on("", settings, paths) == going_on(CURRENT, settings, paths) == GoingOn(settings)


def test_a_chat_goes_on_with_its_own_model_and_all_other_settings(paths: Paths) -> None:
    settings = Settings(model=CURRENT, max_num_seqs=7)
    assert going_on(OTHER, settings, paths) == GoingOn(Settings(model=OTHER, max_num_seqs=7))


def test_a_model_that_is_not_here_leaves_the_chat_to_the_current_one_and_says_so(paths: Paths) -> None:
    settings = Settings(model=CURRENT)
    assert going_on(GONE, settings, paths) == GoingOn(
        settings,
        f"{GONE}, which this chat was begun with, cannot be used here, so {CURRENT} goes on",
        f"Fetch it: octavo models pull {GONE}",
    )


async def test_in_a_workspace_each_chat_speaks_with_its_own_model(stage: HostStage) -> None:
    chat = await begin_chat(stage, OTHER)
    workspace = await stage.workspace(CURRENT)
    old, new = workspace.open(chat), workspace.new()
    await ask(old, "Two.")
    await ask(new, "Three.")
    assert models_of(stage, chat) == [OTHER, OTHER]
    assert models_of(stage, new.chat_id or "") == [CURRENT]
    assert (workspace.host_of(old).model, workspace.host_of(old).state) == (OTHER, HostState.READY)
    assert workspace.host_of(new) == workspace.host
    assert workspace.host.model == CURRENT
    status = await workspace.engine_status(old)
    assert status is not None
    assert status.model == OTHER


async def test_a_chat_whose_model_is_gone_goes_on_with_the_current_one(stage: HostStage) -> None:
    with stage.store() as store:
        chat = store.create_chat(title="Old", model=GONE)
    workspace = await stage.workspace(CURRENT)
    session = workspace.open(chat.id)
    told: list[Change] = []
    session.subscribe(told.append)
    await ask(session, "Hello.")
    assert [change.text for change in told if isinstance(change, Noticed)] == [
        f"{GONE}, which this chat was begun with, cannot be used here, so {CURRENT} goes on"
    ]
    assert session.turns[-1].reply == "Hello."
    assert models_of(stage, chat.id) == [CURRENT]


async def test_a_reply_that_another_model_writes_is_followed_when_its_chat_is_opened(stage: HostStage) -> None:
    chat = await begin_chat(stage, SLOW, LONG)
    workspace: Workspace = await stage.workspace(CURRENT)
    session = workspace.open(chat)
    told: list[Change] = []
    session.subscribe(told.append)
    await until(lambda: any(isinstance(change, TextAppended) for change in told))
    await session.stop()
    await until(lambda: session.turns[-1].status == "stopped")
    with stage.store() as store:
        assert session.turns[-1].reply == store.turns(chat)[-1].reply
    assert LONG.startswith(session.turns[-1].reply)


async def test_the_status_line_tells_of_the_host_of_the_chat_in_view(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"1": HostView(state=HostState.READY, model="ours"), "2": HostView(state=HostState.LOADING, model="other")}
    screen = Stage(stored("One", "1", ("p", "r")), stored("Two", "2", ("p", "r")), chat_id="1")
    monkeypatch.setattr(screen.workspace, "host_of", lambda session: hosts[session.chat_id if session else "1"])
    async with screen.open():
        assert (screen.app.status.host.model, "ours" in screen.screen_text()) == ("ours", True)
        await screen.press("alt+down")
        assert (screen.app.status.host.model, "other" in screen.screen_text()) == ("other", True)
