"""What outlives a run of Octavo: the SQLite store of chats and turns."""
