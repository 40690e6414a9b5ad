// Causal attention over a cache, exact maximum first (two passes, nothing rescaled).
//
// For one query and its n keys:  s_j = f(dot_j * scale), dot_j = serial fma over the head dimension ascending from +0;
// m = max s_j;  e_j = E(f(s_j - m));  denominator: sixteen float32 sums, key j in sum j mod 16 ascending, then added in a tree of
// distances 8, 4, 2, 1;  o_c = serial fma(e_j, v_jc, o_c) over keys ascending from +0;  out_c = f(o_c / denominator).
// Nothing in this depends on the other queries of a batch, so a token's bits are those it would have alone.
#include "engine/rows.h"
#include "port/simd.h"
#include "port/exp.h"

namespace e0 {
namespace E0_ISA {

#if defined(__AVX512F__)
constexpr int kWide = 4, kRows = 6;
#elif defined(__AVX2__)
constexpr int kWide = 1, kRows = 6;
#else
constexpr int kWide = 1, kRows = 1;
#endif
constexpr int kMaxRows = 64;
constexpr int64_t kKeyBlock = 64;      // keys whose K (or V) rows stay in the first-level cache while all queries of the item pass

struct Row {
    const float* q;
    float* out;
    float* score;
    int64_t length;
};

template <int R, int T>
static void scores(const Row* rows, const float* k, int64_t key, int dim, vf scale) {
    vf acc[R][T];
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) acc[r][t] = vset(0.0f);
    const float* q[R];
    for (int r = 0; r < R; ++r) q[r] = rows[r].q;
    const float* tile = k + key * dim;
    for (int d = 0; d < dim; ++d) {
        vf b[T];
        for (int t = 0; t < T; ++t) b[t] = vload(tile + (t * dim + d) * 16);
        for (int r = 0; r < R; ++r) {
            vf a = vset(q[r][d]);
            for (int t = 0; t < T; ++t) acc[r][t] = vfma(a, b[t], acc[r][t]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) vstore(rows[r].score + key + 16 * t, vmul(acc[r][t], scale));
}

template <int R>
static void score_block(const Row* rows, const float* k, int64_t from, int64_t to, int dim, vf scale) {
    int64_t key = from;
    for (; key + 16 * kWide <= to; key += 16 * kWide) scores<R, kWide>(rows, k, key, dim, scale);
    for (; key < to; key += 16) scores<R, 1>(rows, k, key, dim, scale);
}

template <int R, int T>
static void values(const Row* rows, const float* v, int64_t from, int64_t to, int dim, int at) {
    vf acc[R][T];
    const float* e[R];
    for (int r = 0; r < R; ++r) {
        e[r] = rows[r].score;
        for (int t = 0; t < T; ++t) acc[r][t] = vload(rows[r].out + at + 16 * t);
    }
    for (int64_t key = from; key < to; ++key) {
        vf b[T];
        for (int t = 0; t < T; ++t) b[t] = vload(v + key * dim + at + 16 * t);
        for (int r = 0; r < R; ++r) {
            vf a = vset(e[r][key]);
            for (int t = 0; t < T; ++t) acc[r][t] = vfma(a, b[t], acc[r][t]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int t = 0; t < T; ++t) vstore(rows[r].out + at + 16 * t, acc[r][t]);
}

template <int R>
static void value_block(const Row* rows, const float* v, int64_t from, int64_t to, int dim) {
    if (from >= to) return;
    int at = 0;
    for (; at + 16 * kWide <= dim; at += 16 * kWide) values<R, kWide>(rows, v, from, to, dim, at);
    for (; at < dim; at += 16) values<R, 1>(rows, v, from, to, dim, at);
}

// Scores become e_j; returns the denominator.  Lanes past the length hold +0, which no sum of non-negative terms can see.
static float soften(const Row& row) {
    int64_t whole = row.length / 16 * 16, tail = row.length - whole;
    float lanes[16];
    vf top = vset(-__builtin_inff());
    for (int64_t j = 0; j < whole; j += 16) top = vmax(top, vload(row.score + j));
    vstore(lanes, top);
    float m = lanes[0];
    for (int i = 1; i < 16; ++i) m = lanes[i] > m ? lanes[i] : m;
    for (int64_t j = whole; j < row.length; ++j) m = row.score[j] > m ? row.score[j] : m;
    vf sum = vset(0.0f), top_all = vset(m);
    for (int64_t j = 0; j < whole; j += 16) {
        vf e = vexp(vsub(vload(row.score + j), top_all));
        vstore(row.score + j, e);
        sum = vadd(sum, e);
    }
    if (tail) {
        vstore(lanes, vexp(vsub(vload(row.score + whole), top_all)));
        for (int64_t i = tail; i < 16; ++i) lanes[i] = 0.0f;
        vf e = vload(lanes);
        vstore(row.score + whole, e);
        sum = vadd(sum, e);
    }
    vstore(lanes, sum);
    for (int d = 8; d; d >>= 1)
        for (int i = 0; i < d; ++i) lanes[i] = lanes[i] + lanes[i + d];
    return lanes[0];
}

void attend(const AttendItem& a) {
    Row rows[kMaxRows];
    float denominator[kMaxRows];
    int n = 0;
    for (int t = 0; t < a.tokens; ++t)
        for (int g = 0; g < a.group; ++g, ++n) {
            int64_t at = t * a.row_stride + (int64_t)g * a.dim;
            rows[n] = {a.q + at, a.out + at, a.scratch + n * a.score_stride, a.first_length + t};
        }
    int whole = n / kRows * kRows;
    int64_t last = a.first_length + a.tokens - 1;
    vf scale = vset(a.scale);
    for (int64_t from = 0; from < last; from += kKeyBlock) {
        int64_t to = from + kKeyBlock < last ? from + kKeyBlock : last;
        int r = 0;
        for (; r < whole; r += kRows) score_block<kRows>(rows + r, a.k, from, to, a.dim, scale);
        for (; r + 3 <= n; r += 3) score_block<3>(rows + r, a.k, from, to, a.dim, scale);
        for (; r < n; ++r) score_block<1>(rows + r, a.k, from, to, a.dim, scale);
    }
    for (int r = 0; r < n; ++r) {
        denominator[r] = soften(rows[r]);
        for (int c = 0; c < a.dim; ++c) rows[r].out[c] = 0.0f;
    }
    // Keys that every query of the item sees go through the blocks; the few that only later tokens see follow row by row.
    for (int64_t from = 0; from < last; from += kKeyBlock) {
        int64_t to = from + kKeyBlock < a.first_length ? from + kKeyBlock : a.first_length;
        int r = 0;
        for (; r < whole; r += kRows) value_block<kRows>(rows + r, a.v, from, to, a.dim);
        for (; r + 3 <= n; r += 3) value_block<3>(rows + r, a.v, from, to, a.dim);
        for (; r < n; ++r) value_block<1>(rows + r, a.v, from, to, a.dim);
    }
    for (int r = 0; r < n; ++r) {
        value_block<1>(rows + r, a.v, a.first_length, rows[r].length, a.dim);
        for (int c = 0; c < a.dim; ++c) rows[r].out[c] = rows[r].out[c] / denominator[r];
    }
}

}  // namespace E0_ISA
}  // namespace e0
