// Products over Q3_K weights: sixteen rows against up to sixteen tokens, one function per variant.  The folded form holds
// (4 - code) * (scale - 32), so a sum over it is minus the sum that the formulas of mmvq name; the sign moves to the scale, exactly.
#pragma once
#include "cpu/blocks32.h"

namespace e0 {
namespace E0_ISA {

E0_INLINE const float* super_scale(const Super* w, int64_t s, int64_t ns) {
    if (E0_FAULT(FIRST_SUPER_SCALE)) return w[0].d;
    return w[E0_FAULT(NEXT_BLOCK_SCALE) && s + 1 < ns ? s + 1 : s].d;
}
template <int NC>
struct FoldedQ3 {
    typedef ActBlock<NC> Act;
    static void pack(Act* out, const Codes& a, const int64_t* rows, int count, int64_t k) { pack_tokens<NC, 128>(out, a, rows, count, k); }
    static const Super* tile(const WeightView& w, int64_t expert, int64_t tile) {
        return w.supers + (expert * w.tiles + tile) * (w.k / 256);
    }
    static Tree tree(int64_t) { return make_tree(16, 16); }
};

// float64 accumulation of the exact terms I*d*da of 32 positions in ascending order, one rounding
struct RefQ3 : FoldedQ3<1> {
    template <int NT>
    E0_INLINE void run(const Super* w, const Act* a, int64_t k, const Tree&, int t0, float (*out)[16]) {
        const int64_t ns = k / 256;
        double acc[NT][16] = {};
        for (int64_t b = 0; b < 8 * ns; ++b) {
            const float* d = super_scale(w, b / 8, ns);
            vi c[NT];
            dots32<NT>(w[b / 8].w[b % 8], a[b], t0, c);
            for (int t = 0; t < NT; ++t) {
                int32_t ci[16];
                vistore(ci, c[t]);
                const double da = a[b].d[t0 + t];
                for (int r = 0; r < 16; ++r) acc[t][r] -= (double)ci[r] * ((double)d[r] * da);
            }
        }
        for (int t = 0; t < NT; ++t)
            for (int r = 0; r < 16; ++r) out[t0 + t][r] = (float)acc[t][r];
    }
};

// 16 lanes, lane = 8*half + group of four positions: over its four planes s = fma(da, dot4*(scale-32), s); per super block
// l = fma(d, s, l); butterfly 8, 4, 2, 1
struct MmvqQ3 : FoldedQ3<8> {
    template <int NT>
    E0_INLINE void run(const Super* w, const Act* a, int64_t k, const Tree& tree, int t0, float (*out)[16]) {
        const int64_t ns = k / 256;
        vf sum[NT];
        tree_sum<NT>(tree, [&](int lane, vf* l) __attribute__((always_inline)) {
            const int half = lane >> 3, g = lane & 7;
            for (int t = 0; t < NT; ++t) l[t] = vset(0.0f);
            for (int64_t sb = 0; sb < ns; ++sb) {
                vf s[NT];
                for (int t = 0; t < NT; ++t) s[t] = vset(0.0f);
                for (int plane = 0; plane < 4; ++plane) {
                    const int b = 4 * half + plane;
                    const Act& ab = a[8 * sb + b];
                    wgt wg = load_w(w[sb].w[b][g]);
                    for (int t = 0; t < NT; ++t) {
                        vi c = dot4(viset(ab.c[g][t0 + t]), wg, &ab.q[g][(t0 + t) * kDwords]);
                        s[t] = vfnma(vset(ab.d[t0 + t]), vcvt(c), s[t]);
                    }
                }
                vf d = vload(super_scale(w, sb, ns));
                for (int t = 0; t < NT; ++t) l[t] = accumulate(d, s[t], l[t]);
            }
        }, sum);
        for (int t = 0; t < NT; ++t) vstore(out[t0 + t], sum[t]);
    }
};

// per 32-block acc = fma(da, fma(C1, f(d*(sc1-32)), f(C0*f(d*(sc0-32)))), acc), C0 and C1 over 16 positions of code-4
struct MmqQ3 {
    typedef ActBlock<2> Act;
    static void pack(Act* out, const Codes& a, const int64_t* rows, int count, int64_t k) { pack_tokens<2, 4>(out, a, rows, count, k); }
    static const Plain32* tile(const WeightView& w, int64_t expert, int64_t tile) {
        return w.plain + (expert * w.tiles + tile) * (w.k / 32);
    }
    static Tree tree(int64_t) { return Tree(); }
    template <int NT>
    E0_INLINE void run(const Plain32* w, const Act* a, int64_t k, const Tree&, int t0, float (*out)[16]) {
        const int64_t nb = k / 32;
        vf acc[NT];
        for (int t = 0; t < NT; ++t) acc[t] = vset(0.0f);
        for (int64_t b = 0; b < nb; ++b) {
            const Plain32& scales = w[E0_FAULT(FIRST_SUPER_SCALE) ? b % 8 : E0_FAULT(NEXT_BLOCK_SCALE) && b + 1 < nb ? b + 1 : b];
            vf inner[NT];
            for (int half = 0; half < 2; ++half) {
                vi c[NT];
                for (int t = 0; t < NT; ++t) c[t] = viset(a[b].c[half][t0 + t]);
                for (int g = 4 * half; g < 4 * half + 4; ++g) {
                    wgt wg = load_w(w[b].w[g]);
                    for (int t = 0; t < NT; ++t) c[t] = dot4(c[t], wg, &a[b].q[g][(t0 + t) * kDwords]);
                }
                vf s = vload(scales.s[half]);
                for (int t = 0; t < NT; ++t) inner[t] = half ? vfma(vcvt(c[t]), s, inner[t]) : vmul(vcvt(c[t]), s);
            }
            for (int t = 0; t < NT; ++t) acc[t] = accumulate(vset(a[b].d[t0 + t]), inner[t], acc[t]);
        }
        for (int t = 0; t < NT; ++t) vstore(out[t0 + t], acc[t]);
    }
};

// two matrix steps a block: I = sum of (4-code)*(scale-32)*a; acc = fma(I, f(-d*da), acc)
struct W11Q3 : FoldedQ3<1> {
    E0_INLINE void run16(const Super* w, const Act* a, int64_t k, float (*out)[16]) {
        const int64_t ns = k / 256;
        vf acc[16];
        for (int t = 0; t < 16; ++t) acc[t] = vset(0.0f);
        for (int64_t b = 0; b < 8 * ns; ++b) {
            const uint8_t (*wb)[64] = w[b / 8].w[b % 8];
            frag_acc c;
            start(c, a[b].c[0]);
            mma(c, load_a(wb, 0), load_b(a[b], 0));
            mma(c, load_a(wb, 1), load_b(a[b], 1));
            vf nd = vas_f(vxor(vas_i(vload(super_scale(w, b / 8, ns))), viset((int32_t)0x80000000u)));
            for (int t = 0; t < 16; ++t) acc[t] = accumulate(vcvt(whole_dot(c.x[t])), vmul(nd, vset(a[b].d[t])), acc[t]);
        }
        for (int t = 0; t < 16; ++t) vstore(out[t], acc[t]);
    }
};

}  // namespace E0_ISA
}  // namespace e0
