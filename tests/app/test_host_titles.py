"""Titles that the model gives: asked behind the chat's own prefix, after all people, and never over a person's own."""

import asyncio

import pytest
from tests.app.host_inside import host_inside
from tests.app.host_stage import FAST, LONG, host_stage, until

from octavo.client import Client
from octavo.config import Settings
from octavo.host.titles import BACKGROUND, QUESTION
from octavo_data import Store, TurnStatus
from octavo_data.titles import first_words, from_model
from octavo_engine.echo import load_echo
from octavo_engine.events import Event, Started
from octavo_engine.loaded import Loaded

ASKED = Settings(model_titles=True)
TITLE = from_model(QUESTION[:32])  # what the echo answers with 32 tokens of a byte each


async def ask(client: Client, prompt: str, chat_id: str | None = None) -> str:
    reply = client.submit(prompt, chat_id=chat_id)
    accepted = await reply.accepted()
    async for _ in reply.text():
        pass
    return accepted.chat_id or ""


def spied(step_ms: float = 0.0) -> tuple[Loaded, list[Event], list[int]]:
    """A demo engine, what it tells, and with which priorities it is asked."""
    loaded, told, priorities = load_echo(step_ms=step_ms), list[Event](), list[int]()
    step, add = loaded.engine.step, loaded.engine.add

    def tell() -> list[Event]:
        events = step()
        told.extend(events)
        return events

    def note(*values: object, priority: int = 0, **more: object) -> None:
        priorities.append(priority)
        add(*values, priority=priority, **more)  # type: ignore[arg-type]

    loaded.engine.step, loaded.engine.add = tell, note  # type: ignore[method-assign]
    return loaded, told, priorities


async def test_the_model_is_asked_behind_the_ids_of_the_chat_and_all_of_them_are_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded, told, priorities = spied()
    async with host_inside(monkeypatch, lambda _: loaded, settings=ASKED) as (stage, client, _):
        chat = await ask(client, "What do you know of rivers?" * 3)
        with Store(stage.paths.store_file) as store:
            await until(lambda: store.chat(chat).title == TITLE)
            (turn,) = store.turns(chat)
            num_known = len(store.token_ids(turn.id))
        cached = [event.cached_tokens for event in told if isinstance(event, Started)]
        assert cached == [0, num_known - 1]  # the KV of a reply's last token is computed by whoever goes on from it
        assert priorities == [0, BACKGROUND]
        await ask(client, "And of lakes?", chat)
        assert [event.cached_tokens for event in told if isinstance(event, Started)][2] >= num_known


@pytest.mark.parametrize(("settings", "title"), [(ASKED, TITLE), (Settings(), "One.")])
async def test_only_the_first_turn_asks_for_a_title_and_only_where_it_is_wanted(settings: Settings, title: str) -> None:
    async with host_stage(settings) as stage:
        client = await stage.connect(FAST)
        chat = await ask(client, "One.")
        with stage.store() as store:
            await until(lambda: store.chat(chat).title == title)
            store.rename_chat(chat, "One.")
            await ask(client, "Two.", chat)
            await asyncio.sleep(0.2)
            assert store.chat(chat).title == "One."


async def test_a_title_that_a_person_gave_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, told, _ = spied(step_ms=5)
    async with host_inside(monkeypatch, lambda _: loaded, settings=ASKED) as (stage, client, _):
        chat = await ask(client, "Hi.")
        with Store(stage.paths.store_file) as store:
            await until(lambda: sum(isinstance(event, Started) for event in told) == 2)
            store.rename_chat(chat, "Mine")
            await until(lambda: not loaded.engine.has_work)
            await asyncio.sleep(0.2)
            assert store.chat(chat).title == "Mine"


async def test_a_title_that_fails_leaves_the_first_words_and_nobody_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = load_echo()
    prompt = loaded.chat_format.prompt

    def refuse(messages: object, known_ids: object = ()) -> object:
        assert QUESTION not in str(messages), "a bug of ours"
        return prompt(messages, known_ids)  # type: ignore[arg-type]

    monkeypatch.setattr(loaded.chat_format, "prompt", refuse)
    async with host_inside(monkeypatch, lambda _: loaded, settings=ASKED) as (stage, client, _):
        chat = await ask(client, "First words of this one.")
        await asyncio.sleep(0.2)
        with Store(stage.paths.store_file) as store:
            assert store.chat(chat).title == "First words of this one."
        assert await ask(client, "It goes on.", chat) == chat


async def test_a_stopped_turn_has_the_first_words_for_a_title() -> None:
    async with host_stage(ASKED) as stage:
        client = await stage.connect("echo:20")
        reply = client.submit(LONG)
        chat = (await reply.accepted()).chat_id or ""
        client.stop(reply)
        async for _ in reply:
            pass
        await asyncio.sleep(0.2)
        with stage.store() as store:
            assert store.chat(chat).title == first_words(LONG)
            assert store.chat(chat).last_status is TurnStatus.STOPPED


async def test_an_idle_host_waits_for_a_title_on_its_way() -> None:
    async with host_stage(Settings(model_titles=True, idle_minutes=0.0)) as stage:
        client = await stage.connect("echo:30")
        chat = await ask(client, "Hi.")
        await client.aclose()
        await until(lambda: stage.is_host_gone("echo:30"))
        with stage.store() as store:
            assert store.chat(chat).title == TITLE
            assert store.running_hosts() == set()


async def test_a_host_that_stops_waits_for_no_title() -> None:
    model = "echo:500"  # a title takes a quarter of a minute, so that there is none before the host is told to stop
    async with host_stage(ASKED) as stage:
        client = await stage.connect(model)
        chat = await ask(client, "H")
        await client.shutdown()
        await until(lambda: stage.is_host_gone(model))
        with stage.store() as store:
            assert store.chat(chat).title == "H"
            assert store.running_hosts() == set()
