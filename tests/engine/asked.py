"""Random requests, and what must come of each: its reply follows from its prompt, its parameters and its seed alone."""

from dataclasses import dataclass

from hypothesis import strategies as st
from tests.engine.memory_runner import END_ID, hashed_id
from tests.engine.memory_stage import spell

from octavo_engine.events import StopReason
from octavo_engine.params import SamplingParams

SHARED = tuple(1 + number * number % 5 for number in range(60))
PROMPTS = st.builds(
    lambda length, rest: [*SHARED[:length], *rest],
    st.integers(0, 40),
    st.lists(st.integers(1, 5), max_size=5),
)
PARAMS = st.builds(
    lambda least, most, **rest: SamplingParams(min_tokens=least, max_tokens=most and least + most, **rest),
    st.sampled_from((0, 0, 5)),
    st.none() | st.integers(1, 20),
    seed=st.integers(0, 1),
    n=st.sampled_from((1, 1, 1, 2, 3)),
    ignore_eos=st.booleans(),
    stop=st.sampled_from(((), (), ("c",), ("ab", "bd"), ("dea",))),
)


@dataclass(frozen=True)
class Asked:
    """A request as the model knows it: its reply follows from its prompt, its parameters and its seed alone."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int

    def reply(self, max_model_len: int) -> tuple[list[int], StopReason]:
        """The whole reply and why it ends, if nothing comes between."""
        most = min(self.params.max_tokens or max_model_len, max_model_len - len(self.prompt))
        ids: list[int] = []
        while len(ids) < most:
            ids.append(hashed_id([*self.prompt, *ids], self.seed))
            if self.text(ids) != spell(ids):
                return ids, StopReason.STOP
            if ids[-1] == END_ID and not self.params.ignore_eos and len(ids) >= self.params.min_tokens:
                return ids, StopReason.STOP
        return ids, StopReason.LENGTH

    def text(self, ids: list[int]) -> str:
        """The text of a reply so far, cut at a stop string that begins where it may end."""
        num_fixed = len(spell(ids[: max(self.params.min_tokens - 1, 0)]))
        text = spell(ids)
        found = [place for stop in self.params.stop if (place := text.find(stop, num_fixed)) >= 0]
        return text[: min(found)] if found else text
