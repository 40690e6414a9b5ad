// Dense rows: y[m] = serial fma over k ascending from +0.  Sixteen output rows sit in the lanes, so the order within one output never
// meets the width of a register; blocking over rows and tiles only decides which sums are formed side by side.
#include "engine/rows.h"
#include "port/simd.h"

namespace e0 {
namespace E0_ISA {

#if defined(__AVX512F__)
constexpr int kTiles = 4, kRows = 6;      // 24 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kTiles = 1, kRows = 6;      // 12 accumulators of 16
#else
constexpr int kTiles = 1, kRows = 1;
#endif

static inline void store_part(float* y, vf a, int64_t lanes) {
    if (lanes >= 16) {
        vstore(y, a);
        return;
    }
    float t[16];
    vstore(t, a);
    for (int64_t i = 0; i < lanes; ++i) y[i] = t[i];
}

template <int R, int T>
static void block(const float* const* x, float* const* y, const float* w, int64_t K, int64_t m, int64_t M) {
    vf acc[R][T];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) acc[r][t] = vset(0.0f);
    const float* row[R];
    for (int r = 0; r < R; ++r) row[r] = x[r];
    for (int64_t k = 0; k < K; ++k) {
        vf b[T];
        for (int t = 0; t < T; ++t) b[t] = vload(w + (t * K + k) * 16);
        for (int r = 0; r < R; ++r) {
            vf a = vset(row[r][k]);
            for (int t = 0; t < T; ++t) acc[r][t] = vfma(a, b[t], acc[r][t]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) store_part(y[r] + m + 16 * t, acc[r][t], M - m - 16 * t);
}

template <int T>
static void rows(const DenseItem& d, const float* w, int64_t m) {
    int r = 0;
    for (; r + kRows <= d.rows; r += kRows) block<kRows, T>(d.x + r, d.y + r, w, d.K, m, d.M);
    for (; r < d.rows; ++r) block<1, T>(d.x + r, d.y + r, w, d.K, m, d.M);
}

void dense(const DenseItem& d) {
    int64_t tiles = (d.M + 15) / 16, t = 0;
    for (; t + kTiles <= tiles; t += kTiles) rows<kTiles>(d, d.packed + t * 16 * d.K, t * 16);
    for (; t < tiles; ++t) rows<1>(d, d.packed + t * 16 * d.K, t * 16);
}

}  // namespace E0_ISA
}  // namespace e0
