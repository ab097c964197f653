"""Octavo's inference engine: a paged KV cache with shared prefixes, continuous batching, and any transformers LM."""

from typing import TYPE_CHECKING

from octavo_engine.params import SamplingParams

if TYPE_CHECKING:
    from octavo_engine.llm import LLM

__all__ = ["LLM", "SamplingParams"]


def __getattr__(name: str) -> object:
    """Import the plain call at its first use: the UI imports this package and never needs it."""
    if name == "LLM":
        from octavo_engine.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
