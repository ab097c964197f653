"""The half of the engine that knows torch: loading, running and sampling."""
