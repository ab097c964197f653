"""The background process that joins engine and store, and serves all clients of one user and model."""
