"""Octavo: a terminal chat program with its own LLM inference engine."""

__version__ = "0.1.0"
