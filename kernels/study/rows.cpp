// Built once per instruction set; see rows.h.  Lanes are weight rows, so no sum ever crosses a lane and every width of vector gives
// the same bits.
#include "study/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "port/pool.h"
#include "study/lanes.h"

namespace e0_oracle {
namespace E0_ISA {
namespace {

constexpr int N = L / 2;                 // doubles of one register
typedef double vn __attribute__((vector_size(8 * N)));

inline vi magnitude(vi v) {
    vi sign = v >> 31;
    return (v ^ sign) - sign;
}

inline vd magnitude(vd v) {
    typedef int64_t vl __attribute__((vector_size(8 * L)));
    return (vd)((vl)v & INT64_MAX);      // a cast, not a comparison: NaN stays NaN
}

constexpr int T = 4;                     // rows that share one pass over the weights

// One tile of weight rows against `T` activation rows.
template <int G, bool SUB>
void tile(const int16_t* w, const int32_t* sub, const double* dw, int64_t blocks, const int16_t* const* a, const float* const* da,
          vd* t_out, vd* s_out) {
    vd t[T] = {}, s[T] = {};
    for (int64_t b = 0; b < blocks; ++b) {
        vi dot[T] = {}, mag[T] = {};
        for (int half = 0; half < 2; ++half) {
            vi c[T] = {}, m[T] = {};
            for (int g = 0; g < 4; ++g) {
                const int64_t at = b * 32 + half * 16 + g * 4;
                const vi w0 = load(w + at * L), w1 = load(w + (at + 2) * L);
                for (int i = 0; i < T; ++i) {
                    int32_t p[2];
                    std::memcpy(p, a[i] + at, 8);
                    const vi c4 = dot2(w0, p[0]) + dot2(w1, p[1]);
                    c[i] += c4;
                    if (G == 4) m[i] += magnitude(c4);
                }
            }
            if (SUB) {
                const vi scale = load(sub + (b * 2 + half) * L);
                for (int i = 0; i < T; ++i) {
                    c[i] *= scale;
                    if (G == 4) m[i] *= magnitude(scale);
                }
            }
            for (int i = 0; i < T; ++i) {
                dot[i] += c[i];
                if (G == 4) mag[i] += m[i];
                if (G == 16) mag[i] += magnitude(c[i]);
            }
        }
        vd d;
        std::memcpy(&d, dw + b * L, sizeof d);
        for (int i = 0; i < T; ++i) {
            if (G == 32) mag[i] = magnitude(dot[i]);
            const vd scale = d * (double)da[i][b];
            t[i] += __builtin_convertvector(dot[i], vd) * scale;
            s[i] += __builtin_convertvector(mag[i], vd) * magnitude(scale);
        }
    }
    for (int i = 0; i < T; ++i) { t_out[i] = t[i]; s_out[i] = s[i]; }
}

template <int G, bool SUB>
void run_rows(const RowsJob& job) {
    const Packed& p = *job.w;
    const int64_t blocks = p.cols / 32;
    e0::parallel_for(job.n_runs, job.threads, [&](int64_t item) {
        const Run run = job.runs[item];
        std::vector<int16_t> wide((size_t)run.count * p.cols);
        for (int64_t i = 0; i < run.count; ++i) {
            const int8_t* from = job.codes + job.order[run.first + i] * p.cols;
            std::copy(from, from + p.cols, wide.data() + i * p.cols);
        }
        for (int64_t k = 0; k < p.tiles; ++k) {
            const int64_t at = run.expert * p.tiles + k;
            const int16_t* w = p.q.data() + at * p.cols * L;
            const int32_t* sub = SUB ? p.sub.data() + at * (p.cols / 16) * L : nullptr;
            const double* dw = p.scale.data() + at * blocks * L;
            const int live = (int)std::min<int64_t>(L, p.rows - k * L);
            for (int64_t first = 0; first < run.count; first += T) {
                const int16_t* a[T];
                const float* da[T];
                vd t[T], s[T];
                for (int i = 0; i < T; ++i) {        // a short group repeats its last row and drops the copies
                    const int64_t r = std::min<int64_t>(first + i, run.count - 1);
                    a[i] = wide.data() + r * p.cols;
                    da[i] = job.scales + job.order[run.first + r] * blocks;
                }
                tile<G, SUB>(w, sub, dw, blocks, a, da, t, s);
                for (int i = 0; i < T && first + i < run.count; ++i) {
                    const int64_t to = job.order[run.first + first + i] * p.rows + k * L;
                    std::memcpy(job.t + to, &t[i], live * sizeof(double));
                    std::memcpy(job.s + to, &s[i], live * sizeof(double));
                }
            }
        }
    });
}

void rows(const RowsJob& job) {
    const bool sub = job.w->has_sub;
    switch (job.granularity) {
        case 4: return sub ? run_rows<4, true>(job) : run_rows<4, false>(job);
        case 16: return sub ? run_rows<16, true>(job) : run_rows<16, false>(job);
        default: return sub ? run_rows<32, true>(job) : run_rows<32, false>(job);
    }
}

Packed pack(const int8_t* q, const float* d, int64_t d_per_row, const int8_t* sub, int64_t experts, int64_t rows, int64_t cols,
            int threads) {
    Packed p;
    p.lanes = L;
    p.experts = experts;
    p.rows = rows;
    p.cols = cols;
    p.tiles = (rows + L - 1) / L;
    p.has_sub = sub != nullptr;
    const int64_t blocks = cols / 32, subs = cols / 16, per = blocks / d_per_row;   // 32-blocks that share one d
    p.q.resize((size_t)(experts * p.tiles * cols * L));
    p.sub.resize(sub ? (size_t)(experts * p.tiles * subs * L) : 0);
    p.scale.resize((size_t)(experts * p.tiles * blocks * L));
    e0::parallel_for(experts * p.tiles, threads, [&](int64_t at) {
        const int64_t e = at / p.tiles, first = at % p.tiles * L;
        for (int l = 0; l < L && first + l < rows; ++l) {      // lanes past the last row stay 0
            const int64_t row = e * rows + first + l;
            for (int64_t k = 0; k < cols; ++k) p.q[(at * cols + (k & ~1)) * L + 2 * l + (k & 1)] = q[row * cols + k];
            for (int64_t k = 0; sub && k < subs; ++k) p.sub[(at * subs + k) * L + l] = sub[row * subs + k];
            for (int64_t b = 0; b < blocks; ++b) p.scale[(at * blocks + b) * L + l] = d[row * d_per_row + b / per];
        }
    });
    return p;
}

PackedFloats pack_floats(const float* w, int64_t experts, int64_t rows, int64_t cols, int threads) {
    PackedFloats p;
    p.lanes = L;
    p.experts = experts;
    p.rows = rows;
    p.cols = cols;
    p.tiles = (rows + L - 1) / L;
    p.w.resize((size_t)(experts * p.tiles * cols * L));
    e0::parallel_for(experts * p.tiles, threads, [&](int64_t at) {
        const int64_t e = at / p.tiles, first = at % p.tiles * L;
        for (int l = 0; l < L && first + l < rows; ++l)
            for (int64_t k = 0; k < cols; ++k) p.w[(at * cols + k) * L + l] = w[(e * rows + first + l) * cols + k];
    });
    return p;
}

template <class X>
void run_floats(const FloatJob& job, const X* x) {
    const PackedFloats& p = *job.w;
    constexpr int U = 6, P = L / N;
    e0::parallel_for(job.n_runs, job.threads, [&](int64_t item) {
        const Run run = job.runs[item];
        for (int64_t k = 0; k < p.tiles; ++k) {
            const double* w = p.w.data() + (run.expert * p.tiles + k) * p.cols * L;
            const int live = (int)std::min<int64_t>(L, p.rows - k * L);
            for (int64_t first = 0; first < run.count; first += U) {
                const X* row[U];
                for (int i = 0; i < U; ++i) row[i] = x + job.order[run.first + std::min<int64_t>(first + i, run.count - 1)] * p.cols;
                vn acc[U][P] = {};
                for (int64_t c = 0; c < p.cols; ++c) {
                    vn wide[P];
                    std::memcpy(wide, w + c * L, sizeof wide);
                    for (int i = 0; i < U; ++i)
                        for (int j = 0; j < P; ++j) acc[i][j] += wide[j] * (double)row[i][c];
                }
                for (int i = 0; i < U && first + i < run.count; ++i)
                    std::memcpy(job.out + job.order[run.first + first + i] * p.rows + k * L, acc[i], live * sizeof(double));
            }
        }
    });
}

void float_rows(const FloatJob& job) { job.x32 ? run_floats(job, job.x32) : run_floats(job, job.x64); }

}  // namespace

#define E0_STR2(x) #x
#define E0_STR(x) E0_STR2(x)
extern const Table table;
const Table table = {E0_STR(E0_ISA), pack, pack_floats, rows, float_rows};

}  // namespace E0_ISA
}  // namespace e0_oracle
