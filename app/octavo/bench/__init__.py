"""The benchmarks behind `octavo bench`: fixed work, printed numbers."""
