"""What loading a block costs and what computing it costs, as measured here and lately."""

MIN_TOKENS = 64
"""A prefill of fewer tokens says little of its rate: a step costs something by itself."""

NEWEST_SHARE = 0.5
"""Weight of the newest measurement in the running mean."""


class Speeds:
    """Bytes a second from the disk into the pool, tokens a second of prefill; 0 for what was not measured yet."""

    def __init__(self, bytes_per_s: float = 0.0, tokens_per_s: float = 0.0) -> None:
        self.bytes_per_s = bytes_per_s
        self.tokens_per_s = tokens_per_s

    def observe_load(self, num_bytes: int, seconds: float) -> None:
        """Blocks were read."""
        if num_bytes and seconds > 0:
            self.bytes_per_s = _mean(self.bytes_per_s, num_bytes / seconds)

    def observe_prefill(self, num_tokens: int, seconds: float) -> None:
        """A prompt was computed, from its admission to its first token; other chats may have slowed it down."""
        if num_tokens >= MIN_TOKENS and seconds > 0:
            self.tokens_per_s = _mean(self.tokens_per_s, num_tokens / seconds)

    def is_loading_faster(self, num_bytes: int, num_tokens: int) -> bool:
        """Whether so many bytes are sooner there than so many tokens are computed; yes while either is unknown."""
        if not self.bytes_per_s or not self.tokens_per_s:
            return True
        return num_bytes / self.bytes_per_s < num_tokens / self.tokens_per_s

    def compare(self, num_bytes: int, num_tokens: int) -> str:
        """Both predictions in one line, for the log."""
        load_s, prefill_s = _seconds(num_bytes, self.bytes_per_s), _seconds(num_tokens, self.tokens_per_s)
        return (
            f"{num_bytes / 1e6:.1f} MB in {load_s} at {self.bytes_per_s / 1e6:.0f} MB/s, "
            f"{num_tokens} tokens in {prefill_s} at {self.tokens_per_s:.0f} tokens/s"
        )


def _mean(before: float, newest: float) -> float:
    return newest if not before else before + NEWEST_SHARE * (newest - before)


def _seconds(amount: int, per_s: float) -> str:
    return f"{amount / per_s:.3f} s" if per_s else "an unknown time"
