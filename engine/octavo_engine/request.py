"""What the engine remembers of a request beside its sequence: its text so far and its clock."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from octavo_engine.events import Delta, StopReason, Timings, TokenLogprobs, Usage
from octavo_engine.reply_text import ReplyText
from octavo_engine.sequence import Sequence


@dataclass(slots=True)
class Request:
    """Times are seconds of the engine's clock; 0 means "not yet".

    `num_said` counts the ids of the reply that were told. The sequence has more of them where a stop string ended the
    text before the ids that were sampled with it.
    """

    sequence: Sequence
    text: ReplyText
    arrived_at: float
    started_at: float = 0.0
    first_token_at: float = 0.0
    num_said: int = 0
    num_forks: int = 0

    def say(self, token_ids: SequenceOf[int], logprobs: SequenceOf[TokenLogprobs | None]) -> Delta:
        """Tell of the next ids. The text of an id that ends the reply is left out, as a stop string is."""
        sequence = self.sequence
        self.num_said += len(token_ids)
        num_tokens = sequence.num_prompt + self.num_said
        is_stop_id_last = sequence.end is StopReason.STOP and num_tokens == len(sequence.token_ids)
        shown = token_ids[:-1] if is_stop_id_last else token_ids
        text = self.text.add(shown, can_stop=num_tokens >= sequence.least) if shown else ""
        return Delta(sequence.request_id, text, tuple(token_ids), tuple(filter(None, logprobs)) if logprobs else ())

    def usage(self) -> Usage:
        """Counts at this moment; before admission nothing was cached or computed."""
        sequence = self.sequence
        cached = sequence.num_cached
        return Usage(
            prompt_tokens=sequence.num_prompt,
            cached_tokens=cached,
            computed_tokens=sequence.num_prompt - cached if self.started_at else 0,
            completion_tokens=self.num_said,
        )

    def prefill(self) -> tuple[int, float]:
        """How many tokens of the prompt were computed, and in how many seconds; nothing before the first token."""
        if not self.first_token_at:
            return 0, 0.0
        return self.usage().computed_tokens, self.first_token_at - self.started_at

    def timings(self, now: float) -> Timings:
        """Durations up to `now`; the rate counts the tokens after the first over the time after the first."""
        started, first = self.started_at or now, self.first_token_at or now
        decoded, seconds = self.num_said - 1, now - first
        return Timings(
            queue_ms=(started - self.arrived_at) * 1e3,
            first_token_ms=(first - self.arrived_at) * 1e3,
            total_ms=(now - self.arrived_at) * 1e3,
            tokens_per_s=decoded / seconds if decoded > 0 and seconds > 0 else 0.0,
        )
