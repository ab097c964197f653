"""Chats as files: export to Markdown, JSON, JSONL and HTML; import of our own JSON and of other programs' chats."""
