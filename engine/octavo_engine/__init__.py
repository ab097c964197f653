"""Octavo's inference engine: a paged KV cache with shared prefixes, continuous batching, and any transformers LM."""
