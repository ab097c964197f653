"""What the engine remembers of a request beside its sequence: its text so far and its clock."""

from dataclasses import dataclass

from octavo_engine.events import Timings, Usage
from octavo_engine.reply_text import ReplyText
from octavo_engine.sequence import Sequence


@dataclass(slots=True)
class Request:
    """Times are seconds of the engine's clock; 0 means "not yet".

    The reply may end from `least` tokens on, prompt included, and ends at `most`. `is_kept`: its blocks may
    be written to disk.
    """

    sequence: Sequence
    text: ReplyText
    least: int
    most: int
    arrived_at: float
    is_kept: bool
    started_at: float = 0.0
    first_token_at: float = 0.0
    num_forks: int = 0

    def usage(self) -> Usage:
        """Counts at this moment; before admission nothing was cached or computed."""
        sequence = self.sequence
        cached = sequence.num_cached
        return Usage(
            prompt_tokens=sequence.num_prompt,
            cached_tokens=cached,
            computed_tokens=sequence.num_prompt - cached if self.started_at else 0,
            completion_tokens=sequence.num_replied,
        )

    def prefill(self) -> tuple[int, float]:
        """How many tokens of the prompt were computed, and in how many seconds; nothing before the first token."""
        if not self.first_token_at:
            return 0, 0.0
        return self.usage().computed_tokens, self.first_token_at - self.started_at

    def timings(self, now: float) -> Timings:
        """Durations up to `now`; the rate counts the tokens after the first over the time after the first."""
        started, first = self.started_at or now, self.first_token_at or now
        decoded, seconds = self.sequence.num_replied - 1, now - first
        return Timings(
            queue_ms=(started - self.arrived_at) * 1e3,
            first_token_ms=(first - self.arrived_at) * 1e3,
            total_ms=(now - self.arrived_at) * 1e3,
            tokens_per_s=decoded / seconds if decoded > 0 and seconds > 0 else 0.0,
        )
