"""Looks at everything that Octavo needs, and says what is slow or missing and what to do about it."""
