"""The fast path: models of Llama's structure with merged weights, fused kernels and CUDA graphs."""
