// Small things that all kernels want.

constexpr float LOG2E = 1.44269504f;
constexpr float NEVER = -1e30f;  // a score of no weight

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
