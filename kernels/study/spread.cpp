// Built once per instruction set; see spread.h.
#include "study/spread.h"

#include <algorithm>
#include <cmath>

#include "port/pool.h"
#include "study/lanes.h"

namespace e0_oracle {
namespace E0_ISA {
namespace {

typedef int64_t vl __attribute__((vector_size(8 * L)));
typedef float vf __attribute__((vector_size(4 * L)));

constexpr double kSuspect = 12;
constexpr size_t kKept = 64;                      // suspect places remembered of each run
constexpr double kUnit = 0x1p-46 / 12;            // variances are summed in units of (2^-23)^2/12
constexpr double kNothing = 0x1p-220;             // a variance up to this: every partial result is zero, nothing was rounded
constexpr int64_t kExponent = 0x7ff0000000000000;

inline vd only(vd x, vl mask) { return (vd)((vl)x & mask); }
inline vl finite(vd x) { return ((vl)x & kExponent) != kExponent; }
inline vd wide(vi x) { return __builtin_convertvector(x, vd); }

// Gap of float32 at |x| in units of 2^-23: the power of two at or below |x|, that of the subnormals below the normal range.
inline vd gap(vd x) {
    const vd power = (vd)((vl)x & kExponent), least = vd{} + 0x1p-126;
    return power > least ? power : least;
}
inline void rounded(vd& variance, vd result, vd factor) {
    const vd g = gap(result) * factor;
    variance += g * g;
}
inline void rounded(vd& variance, vd result) {
    const vd g = gap(result);
    variance += g * g;
}
// Of a result known exactly: nothing where float32 holds it.
inline void rounded_if_inexact(vd& variance, vd result, vd factor) {
    const vd back = __builtin_convertvector(__builtin_convertvector(result, vf), vd);
    rounded(variance, result, only(factor, back != result));
}

inline vd root(vd x) {
    double v[L];
    std::memcpy(v, &x, sizeof v);
    for (int i = 0; i < L; ++i) v[i] = std::sqrt(v[i]);
    std::memcpy(&x, v, sizeof v);
    return x;
}

// Sum of the active lanes of a butterfly of `width`: partners half the width apart first; idle lanes hold +0 and do not round.
inline vd butterfly(vd& variance, vd* lanes, int64_t active, int width) {
    while (width > 1) {
        width /= 2;
        if (active <= width) continue;
        for (int64_t i = 0; i < active - width; ++i) {
            lanes[i] += lanes[i + width];
            rounded(variance, lanes[i]);
        }
        active = width;
    }
    return lanes[0];
}

// The sums of one tile of columns, a lane per column; folded into a run's sums column by column.
struct Tile {
    vd n = {}, z = {}, zz = {}, zs = {}, zx = {}, xx = {}, suspects = {};

    void add(BiasSums& to, vd y, vd t, vd variance, const vd* terms, int64_t blocks, vl live, vd* zb, vd* bb, int64_t row, int64_t column) {
        vd inverse = 1.0 / root(variance * kUnit);
        vd value = (y - t) * inverse;
        vl used = finite(value) & finite(inverse) & live;
        // A difference where no operation rounds cannot be scaled, and is a suspect.
        const vl off = live & finite(y) & finite(t) & ~finite(value) & (y != t);
        const vd seen = only(value, used);
        const vl wild = off | (seen > kSuspect) | (seen < -kSuspect);
        used &= variance * kUnit > kNothing;
        value = only(value, used);
        inverse = only(inverse, used);
        t = only(t, used);
        for (int i = 0; i < L; ++i)
            if (wild[i]) {
                suspects[i] += 1;
                if (to.places.size() < kKept) to.places.push_back({row, column + i, off[i] ? INFINITY : seen[i]});
            }
        const vd one = vd{} + 1.0;
        n += only(one, used);
        z += value;
        zz += value * value;
        zs += only(value, t > 0) - only(value, t < 0);
        const vd x = t * inverse;
        zx += value * x;
        xx += x * x;
        for (int64_t b = 0; b < blocks; ++b) {
            const vd part = only(terms[b], used) * inverse;
            zb[b] += value * part;
            bb[b] += part * part;
        }
    }

    void fold(BiasSums& to, const vd* zb, const vd* bb, int64_t blocks, int64_t column, int live) const {
        for (int i = 0; i < live; ++i) {
            to.n += n[i];
            to.z += z[i];
            to.zz += zz[i];
            to.zs += zs[i];
            to.zx += zx[i];
            to.xx += xx[i];
            to.suspects += suspects[i];
            to.column_n[column + i] += n[i];
            to.column_z[column + i] += z[i];
            to.column_zz[column + i] += zz[i];
            to.column_zs[column + i] += zs[i];
            for (int64_t b = 0; b < blocks; ++b) {
                to.zb[b] += zb[b][i];
                to.bb[b] += bb[b][i];
            }
        }
    }
};

inline vl live_lanes(int live) {
    vl mask = {};
    for (int i = 0; i < live; ++i) mask[i] = -1;
    return mask;
}

inline vd load_floats(const float* p, int live) {
    float v[L] = {};
    std::memcpy(v, p, live * sizeof(float));
    vf f;
    std::memcpy(&f, v, sizeof f);
    return __builtin_convertvector(f, vd);
}

void start(BiasSums& s, int64_t blocks, int64_t columns) {
    s.zb.assign(blocks, 0);
    s.bb.assign(blocks, 0);
    s.column_n.assign(columns, 0);
    s.column_z.assign(columns, 0);
    s.column_zz.assign(columns, 0);
    s.column_zs.assign(columns, 0);
}

struct Row {
    const int16_t* w;                     // [cols/2][L][2]
    const int32_t* sub;                   // [cols/16][L]
    const double* dw;                     // [blocks][L]
    const int16_t* a;
    const float* da;
    int64_t blocks;
    bool narrow;
};

inline vi dot4(const Row& r, int64_t at) {
    int32_t p[2];
    std::memcpy(p, r.a + at, 8);
    return dot2(load(r.w + at * L), p[0]) + dot2(load(r.w + (at + 2) * L), p[1]);
}
inline vi dot16(const Row& r, int64_t at) { return dot4(r, at) + dot4(r, at + 4) + dot4(r, at + 8) + dot4(r, at + 12); }

// One row value per lane: its exact terms, their sum in the variant's order and the variance of what the variant's roundings do to it.
template <Order O, bool SUB>
vd row_spread(const Row& r, vd* terms, vd& variance) {
    vd acc = {}, lanes[32] = {}, sums[8];
    for (int64_t b = 0; b < r.blocks; ++b) {
        vd dw;
        std::memcpy(&dw, r.dw + b * L, sizeof dw);
        const vd da = vd{} + (double)r.da[b], scale = dw * da;
        if constexpr (O == Order::Q3K_LANES) {
            const int plane = b % 4, half = b % 8 / 4;
            vi whole = {};
            for (int g = 0; g < 8; ++g) {
                const vi dot = dot4(r, b * 32 + g * 4) * load(r.sub + (b * 2 + g / 4) * L);
                whole += dot;
                if (plane == 0) {
                    sums[g] = wide(dot) * da;
                    rounded_if_inexact(variance, sums[g], dw);
                } else {
                    sums[g] += wide(dot) * da;
                    rounded(variance, sums[g], dw);
                }
                if (plane == 3) {
                    lanes[8 * half + g] += sums[g] * dw;
                    rounded(variance, lanes[8 * half + g]);
                }
            }
            terms[b] = wide(whole) * scale;
            continue;
        }
        vi first = dot16(r, b * 32), second = dot16(r, b * 32 + 16);
        if constexpr (SUB) {
            first *= load(r.sub + b * 2 * L);
            second *= load(r.sub + (b * 2 + 1) * L);
        }
        const vd dot = wide(first + second);
        terms[b] = dot * scale;
        if constexpr (O == Order::F64) {
            acc += terms[b];
        } else if constexpr (O == Order::Q3K_HALVES) {
            vd inner = wide(first) * dw;
            rounded_if_inexact(variance, inner, da);
            inner += wide(second) * dw;
            rounded(variance, inner, da);
            acc += terms[b];
            rounded(variance, acc);
        } else if constexpr (O == Order::DOT_FIRST) {
            rounded_if_inexact(variance, dot * dw, da);
            acc += terms[b];
            rounded(variance, acc);
        } else {
            if (!r.narrow) rounded(variance, scale, dot);
            vd& sum = O == Order::LANES ? lanes[b % 32] : acc;
            sum += terms[b];
            rounded(variance, sum);
        }
    }
    if constexpr (O == Order::Q3K_LANES) return butterfly(variance, lanes, 16, 16);
    if constexpr (O == Order::LANES) return butterfly(variance, lanes, std::min<int64_t>(32, r.blocks), 32);
    if constexpr (O == Order::F64) rounded(variance, acc);
    return acc;
}

template <Order O, bool SUB>
void run_rows(const SpreadJob& job) {
    const Packed& p = *job.w;
    const int64_t blocks = p.cols / 32;
    e0::parallel_for(job.n_runs, job.threads, [&](int64_t item) {
        const Run run = job.runs[item];
        BiasSums& out = job.out[item];
        start(out, blocks, p.rows);
        std::vector<int16_t> codes((size_t)run.count * p.cols);
        for (int64_t i = 0; i < run.count; ++i) {
            const int8_t* from = job.codes + job.rows[run.first + i] * p.cols;
            std::copy(from, from + p.cols, codes.data() + i * p.cols);
        }
        std::vector<vd> terms(blocks), zb(blocks), bb(blocks);
        for (int64_t k = 0; k < p.tiles; ++k) {
            const int64_t at = run.expert * p.tiles + k;
            const int live = (int)std::min<int64_t>(L, p.rows - k * L);
            const vl mask = live_lanes(live);
            std::fill(zb.begin(), zb.end(), vd{});
            std::fill(bb.begin(), bb.end(), vd{});
            Row r{p.q.data() + at * p.cols * L, SUB ? p.sub.data() + at * (p.cols / 16) * L : nullptr, p.scale.data() + at * blocks * L,
                  nullptr, nullptr, blocks, job.narrow_scales};
            Tile tile;
            for (int64_t i = 0; i < run.count; ++i) {
                const int64_t row = job.rows[run.first + i];
                r.a = codes.data() + i * p.cols;
                r.da = job.scales + row * blocks;
                vd variance = {};
                const vd t = row_spread<O, SUB>(r, terms.data(), variance);
                const vd y = load_floats(job.y + row * p.rows + k * L, live);
                tile.add(out, y, t, variance, terms.data(), blocks, mask, zb.data(), bb.data(), row, k * L);
            }
            tile.fold(out, zb.data(), bb.data(), blocks, k * L, live);
        }
    });
}

template <Order O>
void by_weights(const SpreadJob& job) { job.w->has_sub ? run_rows<O, true>(job) : run_rows<O, false>(job); }

void rows(const SpreadJob& job) {
    switch (job.order) {
        case Order::F64: return by_weights<Order::F64>(job);
        case Order::LANES: return by_weights<Order::LANES>(job);
        case Order::PRODUCT_FIRST: return by_weights<Order::PRODUCT_FIRST>(job);
        case Order::DOT_FIRST: return by_weights<Order::DOT_FIRST>(job);
        case Order::Q3K_LANES: return run_rows<Order::Q3K_LANES, true>(job);
        case Order::Q3K_HALVES: return run_rows<Order::Q3K_HALVES, true>(job);
    }
}

void experts(const ExpertSpreadJob& job) {
    const int64_t parts = (job.n + job.rows_per_part - 1) / job.rows_per_part;
    e0::parallel_for(parts, job.threads, [&](int64_t part) {
        BiasSums& out = job.out[part];
        start(out, job.k, job.m);
        const int64_t first = part * job.rows_per_part, last = std::min(job.n, first + job.rows_per_part);
        std::vector<vd> terms(job.k), zb(job.k), bb(job.k);
        for (int64_t c = 0; c < job.m; c += L) {
            const int live = (int)std::min<int64_t>(L, job.m - c);
            const vl mask = live_lanes(live);
            std::fill(zb.begin(), zb.end(), vd{});
            std::fill(bb.begin(), bb.end(), vd{});
            Tile tile;
            for (int64_t i = first; i < last; ++i) {
                vd t = {}, variance = {};
                for (int64_t j = 0; j < job.k; ++j) {
                    const int64_t slot = job.slots[i * job.k + j];
                    terms[j] = load_floats(job.y + (i * job.k + slot) * job.m + c, live) * (double)job.weights[i * job.k + slot];
                    t += terms[j];
                    if (!job.once) rounded(variance, t);
                }
                if (job.once) rounded(variance, t);
                const vd y = load_floats(job.yl + i * job.m + c, live);
                tile.add(out, y, t, variance, terms.data(), job.k, mask, zb.data(), bb.data(), i, c);
            }
            tile.fold(out, zb.data(), bb.data(), job.k, c, live);
        }
    });
}

}  // namespace

#define E0_STR2(x) #x
#define E0_STR(x) E0_STR2(x)
extern const SpreadTable spread_table;
const SpreadTable spread_table = {E0_STR(E0_ISA), rows, experts};

}  // namespace E0_ISA
}  // namespace e0_oracle
