"""What a file of our own format must keep beyond types, so that the store's laws hold for what comes out of it."""

import msgspec

from octavo_data.exchange.entries import ChatEntry, TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.records import TurnStatus
from octavo_data.shelves import is_tag


def ordered(chat: ChatEntry, place: str) -> ChatEntry:
    """The chat with parents before their children; BadContentError names what is no tree, or no turn of ours."""
    places = {turn.id: f"{place}/turns/{index}" for index, turn in enumerate(chat.turns)}
    by_id = {turn.id: turn for turn in chat.turns}
    if len(by_id) < len(chat.turns):
        raise BadContentError(f"{place}/turns", "two turns have the same id")
    if chat.tip_id is not None and chat.tip_id not in by_id:
        raise BadContentError(f"{place}/tip_id", f"no turn {chat.tip_id!r} in this chat")
    if chat.updated_at < chat.created_at:
        raise BadContentError(f"{place}/updated_at", "is before created_at")
    _check_tags(chat, f"{place}/tags")
    for turn in chat.turns:
        _check(turn, by_id, places[turn.id])
    turns = (msgspec.structs.replace(turn, model=turn.model or chat.model) for turn in _by_depth(by_id, place))
    return msgspec.structs.replace(chat, turns=tuple(turns))


def closed(chat: ChatEntry) -> ChatEntry:
    """The chat with its running turns as interrupted: whatever runs them does not run them here."""
    turns = [_closed(turn) if turn.status is TurnStatus.RUNNING else turn for turn in chat.turns]
    return msgspec.structs.replace(chat, turns=tuple(turns))


def _closed(turn: TurnEntry) -> TurnEntry:
    interrupted = TurnStatus.INTERRUPTED
    return msgspec.structs.replace(
        turn, status=interrupted, stop_reason=interrupted.value, ended_at=turn.ended_at or turn.created_at
    )


def _check_tags(chat: ChatEntry, place: str) -> None:
    for index, tag in enumerate(chat.tags):
        if not is_tag(tag):
            raise BadContentError(f"{place}/{index}", f"{tag!r} cannot be a tag")
    if list(chat.tags) != sorted(set(chat.tags)):
        raise BadContentError(place, "not in order, or one twice")


def _check(turn: TurnEntry, by_id: dict[str, TurnEntry], place: str) -> None:
    parent = None
    if turn.parent_id is not None:
        parent = by_id.get(turn.parent_id)
        if parent is None:
            raise BadContentError(f"{place}/parent_id", f"no turn {turn.parent_id!r} in this chat")
    num_ids = parent.kept_tokens + len(parent.prompt_ids) + len(parent.reply_ids) if parent else 0
    if turn.kept_tokens > num_ids:
        raise BadContentError(f"{place}/kept_tokens", f"is {turn.kept_tokens}, of a parent that has {num_ids}")
    if (turn.status is TurnStatus.RUNNING) != (turn.ended_at is None):
        raise BadContentError(f"{place}/ended_at", f"does not fit the status {turn.status.value!r}")
    if (turn.template is None) != (turn.template_hash is None):
        raise BadContentError(f"{place}/template_hash", "does not fit the template")


def _by_depth(by_id: dict[str, TurnEntry], place: str) -> tuple[TurnEntry, ...]:
    """The order in which the store hands turns out: by depth, then by id."""
    depths: dict[str | None, int] = {None: 0}
    for turn in by_id.values():
        _measure(turn, by_id, depths, place)
    return tuple(sorted(by_id.values(), key=lambda turn: (depths[turn.id], turn.id)))


def _measure(turn: TurnEntry, by_id: dict[str, TurnEntry], depths: dict[str | None, int], place: str) -> None:
    """Put the depth of the turn and of those above it into `depths`."""
    path: dict[str, None] = {}
    at: str | None = turn.id
    while at not in depths:
        assert at is not None
        if at in path:
            raise BadContentError(f"{place}/turns", f"turn {at!r} is its own ancestor")
        path[at] = None
        at = by_id[at].parent_id
    depths.update({above: step for step, above in enumerate(reversed(path), start=depths[at] + 1)})
