"""The terminal UI: widgets that look at sessions and own no generation."""
