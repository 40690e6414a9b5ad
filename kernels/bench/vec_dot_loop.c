// Calls a ggml vec_dot for every weight row and token, so that no interpreter stands between two dots.
#include <stddef.h>
typedef void (*vec_dot)(int n, float* s, size_t bs, const void* x, size_t bx, const void* y, size_t by, int nrc);
void vec_dot_loop(vec_dot dot, int k, const char* w, size_t row_bytes, int rows, const char* a, size_t act_bytes, int tokens, float* out) {
    for (int t0 = 0; t0 < tokens; t0 += 16)            // sixteen tokens a pass keep both sides in the first cache level
        for (int r = 0; r < rows; ++r)
            for (int t = t0; t < t0 + 16 && t < tokens; ++t)
                dot(k, out + (size_t)t * rows + r, 0, w + r * row_bytes, 0, a + t * act_bytes, 0, 1);
}
