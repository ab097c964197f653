"""Models on this machine: find, fetch, convert, list and remove them, without importing torch."""
