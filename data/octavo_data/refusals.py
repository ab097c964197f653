"""The wording of what the store refuses: which id, why, and what to do."""

from collections.abc import Sequence

from octavo_data.errors import (
    AmbiguousChatError,
    ChatMovedError,
    ChatNotFoundError,
    ChatTrashedError,
    NoChatsError,
    TokenIdsError,
    TurnClosedError,
    TurnNotFoundError,
)


def no_chats() -> NoChatsError:
    """The last chat of a store without chats was asked for."""
    return NoChatsError("there is no chat yet", 'Begin one with: octavo "your question".')


def no_chat(chat_id: str) -> ChatNotFoundError:
    """Nothing has this id or begins with it."""
    return ChatNotFoundError(f"no chat {chat_id!r}", "See: octavo chats.")


def ambiguous(prefix: str, chat_ids: Sequence[str]) -> AmbiguousChatError:
    """Several ids begin with the prefix; the first few of them."""
    message = f"several chats begin with {prefix!r}: {', '.join(chat_ids)}, ..."
    return AmbiguousChatError(message.replace(", ...", "") if len(chat_ids) < 3 else message, "Give more of the id.")


def moved(chat_id: str) -> ChatMovedError:
    """The tip is another than the caller built on."""
    return ChatMovedError(f"chat {chat_id} has gone on elsewhere", "Read it again, then ask again.")


def trashed(chat_id: str) -> ChatTrashedError:
    """The chat is in the trash."""
    return ChatTrashedError(f"chat {chat_id} is in the trash", f"Take it out: octavo chats restore {chat_id}.")


def no_turn(turn_id: str) -> TurnNotFoundError:
    """Nothing has this id."""
    return TurnNotFoundError(f"no turn {turn_id!r}", "It may have been deleted; read the chat again.")


def closed(turn_id: str, status: str) -> TurnClosedError:
    """The turn is over."""
    return TurnClosedError(f"turn {turn_id} is over already ({status})", "Begin a new turn.")


def check_kept(where: str, kept_tokens: int, num_ids: int) -> None:
    """TokenIdsError unless so many ids can be kept; without this a conversation would silently get other ids."""
    if not 0 <= kept_tokens <= num_ids:
        message = f"{kept_tokens} token ids were to be kept of {where}, which has {num_ids}"
        raise TokenIdsError(message, "Build the prompt again from the stored turns.")
