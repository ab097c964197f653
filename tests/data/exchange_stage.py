"""What the tests of export and import share: chats of any shape, and what an import makes of a file."""

import json
from pathlib import Path

import pytest
from hypothesis import strategies as st

from octavo_data import TurnStatus
from octavo_data.encoding import new_id
from octavo_data.exchange.checks import ordered
from octavo_data.exchange.entries import ChatEntry, CountsEntry, TimingsEntry, TurnEntry, path_to_tip
from octavo_data.exchange.errors import ImportFileError
from octavo_data.exchange.foreign import Taken
from octavo_data.exchange.importing import read_file

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
MARKED_UP = st.lists(
    st.sampled_from(
        ["```", "````", "~~~", "# ", "---", "<!--", "-->", "<script>", "</pre>", "<pre>", "<?", "<!A", "<![CDATA[",
         "&amp;", '"', "\n", "\n\n", "\r", "\r\n", "\t", " ", "    ", "> ", "- ", "1. ", "x", "\0",
         "\x1b[2J", "\x85", "\u2028", "é"]
    ),
    max_size=14,
).map("".join)  # fmt: skip
ANY_TEXT = TEXT | MARKED_UP
IDS = st.lists(st.integers(0, 2**32 - 1), max_size=5).map(tuple)
TIMES = st.integers(0, 2_000_000_000_000)
MS = st.floats(0, 1e9)
COUNT = st.integers(0, 1_000_000)
COUNTS = st.builds(CountsEntry, **dict.fromkeys(CountsEntry.__struct_fields__, COUNT))
TIMINGS = st.builds(TimingsEntry, **dict.fromkeys(TimingsEntry.__struct_fields__, MS))
ENDED = [status for status in TurnStatus if status is not TurnStatus.RUNNING]


@st.composite
def turns(draw: st.DrawFn) -> list[TurnEntry]:
    """A forest of turns, each under an earlier one or none."""
    made: list[TurnEntry] = []
    for _ in range(draw(st.integers(0, 6))):
        parent = draw(st.sampled_from([None, *made]))
        num_ids = parent.kept_tokens + len(parent.prompt_ids) + len(parent.reply_ids) if parent else 0
        made.append(
            TurnEntry(
                id=new_id(),
                parent_id=parent.id if parent else None,
                prompt=draw(ANY_TEXT),
                reply=draw(ANY_TEXT),
                status=draw(st.sampled_from(ENDED)),
                stop_reason=draw(TEXT),
                error=draw(ANY_TEXT),
                kept_tokens=draw(st.integers(0, num_ids)),
                model=draw(ANY_TEXT),
                template=(template := draw(st.none() | TEXT)),
                template_hash=None if template is None else draw(TEXT),
                prompt_ids=draw(IDS),
                reply_ids=draw(IDS),
                counts=draw(COUNTS),
                timings=draw(TIMINGS),
                created_at=draw(TIMES),
                ended_at=draw(TIMES),
            )
        )
    return made


@st.composite
def chats(draw: st.DrawFn) -> ChatEntry:
    """A chat with any tree, whose tip is any of its turns."""
    made = draw(turns())
    created_at = draw(TIMES)
    entry = ChatEntry(
        id=new_id(),
        title=draw(ANY_TEXT),
        model=draw(ANY_TEXT),
        system=draw(ANY_TEXT),
        created_at=created_at,
        updated_at=created_at + draw(st.integers(0, 10_000)),
        tip_id=draw(st.sampled_from([None, *(turn.id for turn in made)])),
        is_pinned=draw(st.booleans()),
        archived_at=draw(st.none() | TIMES),
        trashed_at=draw(st.none() | TIMES),
        tags=tuple(sorted(draw(st.sets(st.sampled_from(["work", "c++", "été", "山"]))))),
        turns=tuple(made),
    )
    return ordered(entry, "")


def chat_of(*texts: tuple[str, str], title: str = "Rivers", system: str = "") -> ChatEntry:
    """A chat of one path with these prompts and replies."""
    made: list[TurnEntry] = []
    for prompt, reply in texts:
        made.append(
            TurnEntry(
                id=new_id(), parent_id=made[-1].id if made else None, prompt=prompt, reply=reply,
                status=TurnStatus.DONE, stop_reason="stop", error="", kept_tokens=0, model="smollm2-135m",
                prompt_ids=(1, 2), reply_ids=(3,),
                counts=CountsEntry(), timings=TimingsEntry(), created_at=1_700_000_000_000, ended_at=1_700_000_000_500,
            )
        )  # fmt: skip
    return ChatEntry(
        id=new_id(), title=title, model="smollm2-135m", system=system, created_at=1_700_000_000_000,
        updated_at=1_700_000_000_500, tip_id=made[-1].id if made else None, turns=tuple(made),
    )  # fmt: skip


MODEL = "smollm2-135m"


def taken_of(file: Path, content: object) -> Taken:
    """What the import makes of this text, these bytes, or this value as JSON."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    file.write_bytes(content)
    return read_file(file, MODEL)


def refusal(file: Path, content: object) -> str:
    with pytest.raises(ImportFileError) as caught:
        taken_of(file, content)
    assert caught.value.message.startswith(f"{file}: ")
    return caught.value.message.removeprefix(f"{file}: ")


def texts(entry: ChatEntry) -> list[tuple[str, str]]:
    return [(turn.prompt, turn.reply) for turn in path_to_tip(entry)]


def skipped(taken: Taken) -> dict[str, int]:
    return dict(+taken.skipped)
