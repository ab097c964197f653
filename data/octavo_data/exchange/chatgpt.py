"""ChatGPT's export: a list of conversations, each a tree of nodes under "mapping" with a current node."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from octavo_data.exchange.chatgpt_nodes import Said, said_by
from octavo_data.exchange.entries import TurnEntry
from octavo_data.exchange.errors import BadContentError
from octavo_data.exchange.foreign import Defaults, Taken, finished_turn, foreign_chat, milliseconds, stable_id

_KIND = "ChatGPT"


@dataclass(slots=True, eq=False)
class _State:
    """A question and the reply so far on the way to one node; it becomes a turn where the way ends or asks again."""

    node_id: str = ""  # the last node that said something
    before: "_State | None" = None  # the turn above
    prompt: str = ""
    replies: tuple[str, ...] = ()
    time: object = None
    goes_on: bool = False  # the same turn has more text further down
    turn_id: str | None = None


@dataclass(slots=True)
class _Tree:
    """One conversation while it is walked."""

    key: str
    time_ms: int
    turns: list[TurnEntry] = field(default_factory=list)

    def turn_of(self, state: _State | None) -> str | None:
        """The id of the state's turn, made at the first call with those above it; None above the first turn."""
        missing: list[_State] = []
        while state and state.node_id and state.turn_id is None:  # no recursion: a chat may be long
            missing.append(state)
            state = state.before
        turn_id = state.turn_id if state else None
        for below in reversed(missing):
            turn_id = self._make(below, turn_id)
        return turn_id

    def _make(self, state: _State, parent_id: str | None) -> str:
        time_ms = milliseconds(state.time, self.time_ms)
        state.turn_id = stable_id(time_ms, _KIND, self.key, state.node_id)
        reply = "\n\n".join(state.replies)
        self.turns.append(finished_turn(state.turn_id, parent_id, state.prompt, reply, time_ms))
        return state.turn_id


def is_chatgpt(value: Any) -> bool:
    """Whether a JSON document is an export of ChatGPT, or one conversation of it."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "mapping" in first


def read_chatgpt(value: Any, defaults: Defaults) -> Taken:
    """All conversations; BadContentError with a JSON pointer."""
    taken = Taken(_KIND)
    for index, conversation in enumerate(value if isinstance(value, list) else [value]):
        place = f"/{index}" if isinstance(value, list) else ""
        if not isinstance(conversation, dict) or not isinstance(conversation.get("mapping"), dict):
            raise BadContentError(f"{place}/mapping", "no object of nodes")
        _read(conversation, place, defaults, taken)
    return taken


def _read(conversation: dict[str, Any], place: str, defaults: Defaults, taken: Taken) -> None:
    mapping = conversation["mapping"]
    current = conversation.get("current_node")
    key = str(conversation.get("conversation_id") or conversation.get("id") or ",".join(mapping))
    tree = _Tree(key, milliseconds(conversation.get("create_time"), defaults.time_ms))
    states = _walk(mapping, f"{place}/mapping", taken.skipped)
    tip_id = _grow(tree, states, current)
    if not tree.turns:
        taken.skipped["empty chat"] += 1
        return
    title = conversation.get("title")
    title = title if isinstance(title, str) else ""
    chat_id = stable_id(tree.time_ms, _KIND, key)
    taken.chats.append(foreign_chat(chat_id, title, defaults.model, tree.turns, tip_id=tip_id))


def _grow(tree: _Tree, states: dict[str, tuple[_State, bool]], current: Any) -> str | None:
    """Make the turns of all ways to their ends, and return that of the current node."""
    for state, is_end in states.values():
        if is_end and not state.goes_on:
            tree.turn_of(state)
    return tree.turn_of(states[current][0]) if isinstance(current, str) and current in states else None


def _walk(mapping: dict[str, Any], place: str, skipped: Counter[str]) -> dict[str, tuple[_State, bool]]:
    """The state at each node, and whether the way ends there."""
    parents = dict(_parents(mapping, place))
    children: dict[str | None, list[str]] = {}
    for node_id, parent_id in parents.items():
        children.setdefault(parent_id, []).append(node_id)
    states: dict[str, tuple[_State, bool]] = {}
    waiting = [(node_id, _State()) for node_id in reversed(children.get(None, []))]
    while waiting:
        node_id, above = waiting.pop()
        said = said_by(mapping[node_id], f"{place}/{pointer(node_id)}", skipped)
        state = _next(above, node_id, said) if said else above
        below = children.get(node_id, [])
        states[node_id] = (state, not below)
        waiting += [(child, state) for child in reversed(below)]
    if lost := mapping.keys() - states.keys():
        raise BadContentError(f"{place}/{pointer(min(lost))}/parent", "the node is its own ancestor")
    return states


def _next(above: _State, node_id: str, said: Said) -> _State:
    if said.role == "user":
        return _State(node_id, above, said.text, (), said.time)
    if above.node_id:
        above.goes_on = True
        return _State(node_id, above.before, above.prompt, (*above.replies, said.text), above.time)
    return _State(node_id, None, "", (said.text,), said.time)  # a greeting, before any question


def _parents(mapping: dict[str, Any], place: str) -> Iterator[tuple[str, str | None]]:
    """Each node and the node above it; None for a root, and for a node whose parent is not in the file."""
    above: dict[str, str] = {}
    for node_id, node in mapping.items():
        if not isinstance(node, dict):
            raise BadContentError(f"{place}/{pointer(node_id)}", "not an object")
        listed = node.get("children")
        above |= {child: node_id for child in listed if isinstance(child, str)} if isinstance(listed, list) else {}
    for node_id, node in mapping.items():
        parent = node["parent"] if "parent" in node else above.get(node_id)
        yield node_id, parent if isinstance(parent, str) and parent in mapping else None


def pointer(name: str) -> str:
    """One step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
