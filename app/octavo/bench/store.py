"""What the store costs when it is large: 100,000 turns in 2,000 chats, beside a file of a tenth of that."""

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sized
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles

from octavo.bench.results import Result
from octavo_data import Store, TurnCounts, TurnStatus, TurnTimings
from octavo_data.exchange.entries import ChatEntry, CountsEntry, TimingsEntry, TurnEntry
from octavo_data.exchange.foreign import stable_id
from octavo_data.exchange.trees import add_chats
from octavo_data.search import search

SIZES = ((10_000, 200), (100_000, 2_000))  # turns, chats
LONGEST = 1_000  # turns of one of the chats
NUM_REPEATS = 100
NUM_AT_ONCE = 200  # chats written in one transaction

MODEL = "smollm2-135m"
PROMPT_WORDS, REPLY_WORDS = 20, 120
PROMPT_IDS, REPLY_IDS = tuple(range(1000, 1030)), tuple(range(2000, 2160))
RARE = "quixotically"  # in one turn of a file
SIGNED, NUM_RUNS = 0.15, 20_000  # words that signs follow; runs of signs, of which 90 MB of source code have as many
_COMMON_SIGNS = (",", ".", ":", "(", ")", "`", "-", "**", ";", "?", "!", "`.", "`,", "),", "=>", "::", "…", "✅", "🙂")
_SIGNS = "()[]{}<>=+-*/&|!;:,.\"'`#@"
_SYLLABLES = re.findall("..", "bakoritesumanovilecondepreingeralshowingarplomustefendal")
_START_MS, _TURN_MS = 1_700_000_000_000, 60_000


class Words:
    """Texts in which word n comes n times as rarely as the first, as in what people write, and so do runs of signs."""

    def __init__(self) -> None:
        self._rng = random.Random(5)
        made = {"".join(self._rng.choices(_SYLLABLES, k=self._rng.choice((1, 2, 2, 3, 3, 4)))) for _ in range(60_000)}
        self._words = sorted(made)
        self._rng.shuffle(self._words)
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self._words) + 1)))
        others = {"".join(self._rng.choices(_SIGNS, k=self._rng.randint(2, 5))) for _ in range(NUM_RUNS)}
        self._runs = [*_COMMON_SIGNS, *sorted(others)]
        self._run_weights = list(accumulate(1 / rank for rank in range(1, len(self._runs) + 1)))

    @property
    def common(self) -> str:
        """The commonest word: nearly every turn has it."""
        return self._words[0]

    @property
    def rare_signs(self) -> str:
        """The last of the runs: some twenty turns of 100,000 have it."""
        return self._runs[-1]

    def text(self, num_words: int) -> str:
        """So many words."""
        words = self._rng.choices(self._words, cum_weights=self._weights, k=num_words)
        runs = self._rng.choices(self._runs, cum_weights=self._run_weights, k=num_words)
        return " ".join(word + run * (self._rng.random() < SIGNED) for word, run in zip(words, runs, strict=True))


def bench_store() -> Iterator[Result]:
    """How long each kind of work takes, in the small file and in the large one."""
    for num_turns, num_chats in SIZES:
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "octavo.db") as store:
            words = Words()
            begin = time.perf_counter()
            longest = _fill(store, words, num_turns, num_chats)
            seconds = time.perf_counter() - begin
            yield _result(num_turns, "make it", chats=num_chats, seconds=seconds, MB=store.path.stat().st_size / 1e6)
            for what, work in _works(store, words, longest).items():
                yield _timed(num_turns, what, work)


def _works(store: Store, words: Words, longest: str) -> dict[str, Callable[[], object]]:
    """What is timed, by name; where it returns a list, so many rows are the result."""
    return {
        "open the file": lambda: Store(store.path).close(),
        "list all chats": store.chats,
        "list 50 chats": lambda: store.chats(50),
        f"open the chat of {LONGEST:,} turns": lambda: store.turns(longest),
        "search a common word": lambda: search(store, words.common),
        "search a rare word": lambda: search(store, RARE),
        "search a word begun with 1 letter": lambda: search(store, words.common[:1]),
        "search a word begun with 4 letters": lambda: search(store, RARE[:4]),
        "search a common and a begun word": lambda: search(store, f"{words.common} qu"),
        "search a sign that no turn has": lambda: search(store, "☃"),
        "search signs that many turns have": lambda: search(store, "=>"),
        "search signs that a few have": lambda: search(store, words.rare_signs),
        "search a common word and the first": lambda: search(store, f"{words.common} ☃"),
        "append a turn": lambda: _append(store, words, longest),
    }


def _timed(num_turns: int, what: str, work: Callable[[], object]) -> Result:
    times, rows = [], 0
    for _ in range(NUM_REPEATS):
        begin = time.perf_counter()
        result = work()
        times.append((time.perf_counter() - begin) * 1e3)
        rows = len(result) if isinstance(result, Sized) else 0
    more = {"median ms": median(times), "p95 ms": quantiles(times, n=20)[-1]}
    return _result(num_turns, what, rows=rows, **more)


def _result(num_turns: int, what: str, **figures: float) -> Result:
    more: dict[str, float | int | str] = {"turns": num_turns, "what": what}
    return Result(work="store", model="none", more=more | figures)


def _append(store: Store, words: Words, chat_id: str) -> None:
    """A turn as a host stores it: begun and ended, each in a commit of its own."""
    turn = store.begin_turn(
        chat_id, prompt=words.text(PROMPT_WORDS), host="bench", kept_tokens=0, prompt_ids=PROMPT_IDS
    )
    store.end_turn(
        turn.id,
        status=TurnStatus.DONE,
        stop_reason="stop",
        reply=words.text(REPLY_WORDS),
        reply_ids=REPLY_IDS,
        counts=TurnCounts(),
        timings=TurnTimings(),
    )


def _fill(store: Store, words: Words, num_turns: int, num_chats: int) -> str:
    """Write the chats as an import does; returns the id of the longest."""
    each, more = divmod(num_turns - LONGEST, num_chats - 1)
    sizes = [LONGEST, *(each + (number < more) for number in range(num_chats - 1))]
    for begin in range(0, num_chats, NUM_AT_ONCE):
        numbers = range(begin, min(begin + NUM_AT_ONCE, num_chats))
        add_chats(store, [_chat(words, number, sizes[number]) for number in numbers])
    return _chat_id(0)


def _chat(words: Words, number: int, size: int) -> ChatEntry:
    start = _start_ms(number)
    turns: list[TurnEntry] = []
    for index in range(size):
        parent = turns[-1].id if turns else None
        reply = words.text(REPLY_WORDS) + (f" {RARE}" if (number, index) == (1, 0) else "")
        turns.append(_turn(number, index, parent, words.text(PROMPT_WORDS), reply, start + index * _TURN_MS))
    return ChatEntry(
        id=_chat_id(number),
        title=words.text(5),
        model=MODEL,
        system="",
        created_at=start,
        updated_at=turns[-1].created_at,
        tip_id=turns[-1].id,
        turns=tuple(turns),
    )


def _chat_id(number: int) -> str:
    return stable_id(_start_ms(number), "bench", str(number))


def _start_ms(number: int) -> int:
    return _START_MS + number * _TURN_MS * 100


def _turn(number: int, index: int, parent_id: str | None, prompt: str, reply: str, time_ms: int) -> TurnEntry:
    return TurnEntry(
        id=stable_id(time_ms, "bench", str(number), str(index)),
        parent_id=parent_id,
        prompt=prompt,
        reply=reply,
        status=TurnStatus.DONE,
        stop_reason="stop",
        error="",
        kept_tokens=0,
        model=MODEL,
        prompt_ids=PROMPT_IDS,
        reply_ids=REPLY_IDS,
        counts=CountsEntry(),
        timings=TimingsEntry(),
        created_at=time_ms,
        ended_at=time_ms,
    )
