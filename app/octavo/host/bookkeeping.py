"""What the host reads of and writes to the store for one turn; all of it runs in the store thread."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from octavo.errors import RequestRejectedError
from octavo.host_lock import reap
from octavo.paths import Paths
from octavo_data import Chat, Store, Turn, TurnCounts, TurnStatus, TurnTimings
from octavo_data.kv_disk import KVDisk
from octavo_data.kv_files import KVFolder
from octavo_data.titles import first_words
from octavo_engine.events import Finished
from octavo_engine.messages import Message, Prompt


@dataclass(frozen=True, slots=True)
class Plan:
    """What a prompt is built from: the path of its chat (None for a new one) and the exact ids known so far."""

    messages: Sequence[Message]
    chat: Chat | None = None
    known_ids: Sequence[int] = ()


def plan_new(prompt: str, system: str | None) -> Plan:
    """The plan of a chat's first turn; the store is not needed."""
    head = [Message("system", system)] if system else []
    return Plan([*head, Message("user", prompt)])


def plan_next(store: Store, paths: Paths, model: str, chat_id: str, prompt: str, owed: Sequence["Ending"] = ()) -> Plan:
    """The plan of a further turn; ids that another model gave the last one mean nothing to ours.

    `owed` are ends that the store could not take: their turns are over, and it knows no more than a part of their ids.
    Raises StoreError, and RequestRejectedError while the chat's last turn is running.
    """
    chat = store.chat(chat_id)
    replies = {ending.turn_id: ending.reply for ending in owed}
    is_owed = chat.tip_id in replies
    if chat.last_status is TurnStatus.RUNNING and not is_owed and reap(store, paths):
        chat = store.chat(chat.id)
    if chat.last_status is TurnStatus.RUNNING and not is_owed:
        raise busy_error()
    turns = store.turns(chat.id)
    messages = [*plan_new("", chat.system).messages[:-1], *_messages(turns, replies), Message("user", prompt)]
    is_known = turns and turns[-1].model == model and not is_owed
    return Plan(messages, chat, store.token_ids(turns[-1].id) if is_known else ())


def begin(store: Store, plan: Plan, text: str, prompt: Prompt, host: str, model: str) -> Turn:
    """Write the turn as running, in a new chat where the plan has none; both or neither. Raises StoreError."""
    with store.writing():
        return _begin(store, plan, text, prompt, host, model)


def _begin(store: Store, plan: Plan, text: str, prompt: Prompt, host: str, model: str) -> Turn:
    system = next((message.text for message in plan.messages if message.role == "system"), "")
    chat = plan.chat or store.create_chat(title=first_words(text), model=model, system=system)
    return store.begin_turn(
        chat.id,
        prompt=text,
        host=host,
        kept_tokens=prompt.kept_tokens,
        prompt_ids=prompt.token_ids[prompt.kept_tokens :],
        parent_id=chat.tip_id,
        must_be_tip=True,
        model=model,
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """A turn that is over, ready to be written."""

    turn_id: str
    status: TurnStatus
    finished: Finished
    reply: str
    reply_ids: Sequence[int]


def end(store: Store, ending: Ending) -> None:
    """Close the turn with its whole reply. Raises StoreError."""
    finished = ending.finished
    store.end_turn(
        ending.turn_id,
        status=ending.status,
        stop_reason=finished.stop_reason.value,
        reply=ending.reply,
        reply_ids=ending.reply_ids,
        counts=TurnCounts(**asdict(finished.usage)),
        timings=TurnTimings(**asdict(finished.timings)),
        error=finished.error,
    )


def reap_all(store: Store, paths: Paths, own_name: str) -> int:
    """Close the turns of dead hosts; with our name they are those of one before us, for we hold its lock."""
    return store.interrupt_turns(own_name) + reap(store, paths)


def clear_disk(store: Store, paths: Paths) -> None:
    """Remove the KV blocks of the time when the settings still wanted some. Raises StoreError."""
    KVDisk(store, KVFolder(paths.kv_dir), 0).clear()


def busy_error() -> RequestRejectedError:
    """The refusal of a second turn at once."""
    return RequestRejectedError(
        "A reply is still being written in this chat", "Wait for it or stop it, or ask in another chat."
    )


def _messages(turns: Sequence[Turn], replies: Mapping[str, str]) -> list[Message]:
    said = [(turn.prompt, replies.get(turn.id, turn.reply)) for turn in turns]
    pairs = [(Message("user", prompt), Message("assistant", reply)) for prompt, reply in said]
    return [message for pair in pairs for message in pair]
