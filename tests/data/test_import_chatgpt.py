"""Laws of the import of ChatGPT's export: one file, several, or the zip."""

import contextlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.exchange_stage import MODEL, refusal, skipped, taken_of, texts

from octavo_data import Store
from octavo_data.exchange.entries import path_to_tip
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.importing import read_file
from octavo_data.exchange.trees import Added, add_chats, read_chats


def node(parent: str | None, role: str = "", *parts: object, kind: str = "text", **more: object) -> dict[str, Any]:
    if not role:
        return {"parent": parent, "message": None, "children": []}
    content = {"content_type": kind, "parts": list(parts)}
    return {"parent": parent, "children": [], "message": {"author": {"role": role}, "content": content, **more}}


def conversation(current: str, **nodes: dict[str, Any]) -> dict[str, Any]:
    return {"title": "Rivers", "conversation_id": "c1", "create_time": 1.7e9, "current_node": current, "mapping": nodes}


BRANCHED = conversation(
    "a2",
    root=node(None),
    s=node("root", "system", ""),
    q1=node("s", "user", "One?", create_time=1_700_000_100.25),
    a1=node("q1", "assistant", "1."),
    b1=node("q1", "assistant", "Uno."),
    call=node("a1", "assistant", "search()", recipient="browser"),
    found=node("call", "tool", "found"),
    think=node("found", "assistant", kind="thoughts"),
    more=node("think", "assistant", "And a half."),
    q2=node("more", "user", "Two?", {"content_type": "image_asset_pointer"}, kind="multimodal_text"),
    a2=node("q2", "assistant", "2."),
    hidden=node("q2", "user", "context", kind="user_editable_context"),
    q3=node("b1", "user", "Due?"),
    a3=node("q3", "assistant", "Due."),
    end=node("a3", "assistant", ""),
)


def test_a_tree_of_chatgpt_keeps_its_branches_and_its_current_node(file: Path, store: Store) -> None:
    taken = taken_of(file, [BRANCHED])
    (entry,) = taken.chats
    assert texts(entry) == [("One?", "1.\n\nAnd a half."), ("Two?", "2.")]
    by_id = {turn.id: turn.prompt for turn in entry.turns} | {None: ""}
    assert sorted((by_id[turn.parent_id], turn.prompt, turn.reply) for turn in entry.turns) == [
        ("", "One?", "1.\n\nAnd a half."), ("", "One?", "Uno."), ("One?", "Due?", "Due."), ("One?", "Two?", "2.")
    ]  # fmt: skip
    assert (entry.title, entry.created_at) == ("Rivers", 1_700_000_000_000)
    assert skipped(taken) == {
        "system message": 1, "tool message": 2, "reasoning message": 1, "image": 1, "custom instruction": 1,
        "empty node": 1,
    }  # fmt: skip
    assert add_chats(store, taken.chats) == Added(num_chats=1, num_turns=4)
    assert list(read_chats(store, [entry.id])) == [entry]
    assert [turn.reply for turn in store.turns(entry.id)] == ["1.\n\nAnd a half.", "2."]
    assert store.token_ids(entry.tip_id or "") == []
    assert add_chats(store, read_file(file, MODEL).chats) == Added(num_known=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(["user", "assistant", "tool"])), max_size=12)
)
def test_the_words_on_the_way_to_every_end_of_any_tree_are_kept(file: Path, plan: list[tuple[float, str]]) -> None:
    nodes, ways, ends = {"n": node(None)}, {"n": ""}, {"n"}
    for index, (place, role) in enumerate(plan):
        parent = list(nodes)[int(place * len(nodes))]
        name = f"n{index}"
        nodes[name] = node(parent, role, f"<{index}>")
        ways[name] = ways[parent] + (f"<{index}>" if role != "tool" else "")
        ends = (ends - {parent}) | {name}
    taken = taken_of(file, [conversation(list(nodes)[-1], **nodes)])
    said = {""}
    for entry in taken.chats:
        by_id: dict[str | None, str] = {None: ""}
        for turn in entry.turns:
            by_id[turn.id] = by_id[turn.parent_id] + turn.prompt + turn.reply.replace("\n\n", "")
        said |= set(by_id.values())
        assert by_id[entry.tip_id] == ways[list(nodes)[-1]] or not ways[list(nodes)[-1]]
    for end in ends:  # one that only a tool has written to is on the way of another
        assert any(words.startswith(ways[end]) for words in said)


def test_a_long_conversation_needs_no_deep_stack(file: Path) -> None:
    nodes = {"n0": node(None)}
    for index in range(1, 6001):
        nodes[f"n{index}"] = node(f"n{index - 1}", "user" if index % 2 else "assistant", f"{index}")
    (entry,) = taken_of(file, [conversation("n6000", **nodes)]).chats
    assert len(path_to_tip(entry)) == 3000


def test_a_conversation_without_words_is_counted(file: Path) -> None:
    taken = taken_of(file, [conversation("root", root=node(None), s=node("root", "system", "You are"))])
    assert (taken.chats, skipped(taken)) == ([], {"system message": 1, "empty chat": 1})


def zipped(**files: object) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", ".").replace("of", "-00"), json.dumps(content))
    return packed.getvalue()


def test_a_zip_gives_all_its_files(file: Path) -> None:
    second = conversation("q", q=node(None, "user", "Alone?")) | {"conversation_id": "c2"}
    content = zipped(user_json={"id": 1}, conversationsof0_json=[BRANCHED], conversationsof1_json=[second])
    assert [len(entry.turns) for entry in taken_of(file, content).chats] == [4, 1]
    assert [len(entry.turns) for entry in taken_of(file, zipped(conversations_json=[BRANCHED])).chats] == [4]


def test_a_bad_zip_is_refused_with_the_file_inside(file: Path) -> None:
    good = zipped(conversations_json=[BRANCHED] * 20)
    assert refusal(file, zipped(user_json={})) == "a zip without a conversations.json in it"
    assert refusal(file, good[: len(good) // 2]).startswith("a damaged zip: ")
    assert refusal(file, good.replace(good[60:64], b"\xff\xff\xff\xff", 1)).startswith("a damaged zip: ")
    for at in range(4, len(good), 3):
        with contextlib.suppress(ImportFileError):  # a flag or a date may be anything
            taken_of(file, good[:at] + b"\xfe" + good[at + 1 :])
    bad = zipped(conversationsof0_json=[BRANCHED], conversationsof1_json=[conversation("x", x="y")])  # type: ignore[arg-type]
    assert refusal(file, bad) == "conversations-001.json: /0/mapping/x: not an object"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"x/y": {"message": 1}}, "/0/mapping/x~1y/message: not an object"),
        ({"x": {"message": {}}}, "/0/mapping/x/message/author: missing"),
        ({"x": {"message": {"author": {"role": 3}}}}, "/0/mapping/x/message/author/role: not a text"),
        ({"x": {"message": {"author": {"role": "user"}}}}, "/0/mapping/x/message/content: missing"),
        ({"x": node(None, "user", 7)}, "/0/mapping/x/message/content/parts/0: neither text nor an object"),
        ({"x": node("y"), "y": node("x")}, "/0/mapping/x/parent: the node is its own ancestor"),
    ],
)
def test_a_bad_node_is_named(file: Path, nodes: dict[str, Any], said: str) -> None:
    assert refusal(file, [conversation("x") | {"mapping": nodes}]) == said


def test_no_beginning_of_a_file_is_taken_for_the_whole(file: Path) -> None:
    whole = json.dumps([BRANCHED])
    for length in range(0, len(whole), 7):
        refusal(file, whole[:length])
    assert taken_of(file, whole).chats
