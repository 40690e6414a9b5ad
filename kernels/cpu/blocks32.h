// Products over 32-blocks (Q8_0, Q4_0, IQ4_NL): sixteen weight rows against up to sixteen tokens, one function per variant.
// C is the exact integer dot of a block, dw and da the scales; f() one rounding to float32.  out[token][row].
#pragma once
#include "cpu/faults.h"
#include "port/matrix_simd.h"

namespace e0 {
namespace E0_ISA {

#if defined(__AVX512F__)
enum { kTokens = 8 };              // tokens that share a loaded weight group
#else
enum { kTokens = 2 };
#endif

E0_INLINE const float* block_scale(const Block32* w, int64_t b, int64_t nb) {
    return w[E0_FAULT(NEXT_BLOCK_SCALE) && b + 1 < nb ? b + 1 : b].d;
}

// fma(a, b, sum) as every running sum is formed
E0_INLINE vf accumulate(vf a, vf b, vf sum) {
    vf r = vfma(a, b, sum);
#if E0_MUTANTS
    float v[4][16];
    vstore(v[0], a), vstore(v[1], b), vstore(v[2], sum), vstore(v[3], r);
    faulted_sum(v[3], v[0], v[1], v[2]);
    r = vload(v[3]);
#endif
    return r;
}

// a block's dots, once they are whole
E0_INLINE vi whole_dot(vi c) {
#if E0_MUTANTS
    int32_t v[16];
    vistore(v, c);
    for (int32_t& x : v) x = faulted_dot(x);
    c = viload(v);
#endif
    return c;
}

// the block's dots of NT tokens
template <int NT, int NC>
E0_INLINE void dots32(const uint8_t (*w)[64], const ActBlock<NC>& a, int t0, vi* c) {
    for (int t = 0; t < NT; ++t) c[t] = viset(a.c[0][t0 + t]);
    for (int g = 0; g < 8; ++g) {
        wgt wg = load_w(w[g]);
        for (int t = 0; t < NT; ++t) c[t] = dot4(c[t], wg, &a.q[g][(t0 + t) * kDwords]);
    }
    for (int t = 0; t < NT; ++t) c[t] = whole_dot(c[t]);
}

struct Blocks32 {
    typedef ActBlock<1> Act;
    static void pack(Act* out, const Codes& a, const int64_t* rows, int count, int64_t k) { pack_tokens<1, 128>(out, a, rows, count, k); }
    static const Block32* tile(const WeightView& w, int64_t expert, int64_t tile) {
        return w.blocks + (expert * w.tiles + tile) * (w.k / 32);
    }
    static Tree tree(int64_t k) { return make_tree(k / 32, 32); }
};

// float64 accumulation of the exact terms C*dw*da in ascending order, one rounding
struct Ref32 : Blocks32 {
    template <int NT>
    E0_INLINE void run(const Block32* w, const Act* a, int64_t k, const Tree&, int t0, float (*out)[16]) {
        const int64_t nb = k / 32;
        double acc[NT][16] = {};
        for (int64_t b = 0; b < nb; ++b) {
            const float* dw = block_scale(w, b, nb);
            vi c[NT];
            dots32<NT>(w[b].w, a[b], t0, c);
            for (int t = 0; t < NT; ++t) {
                int32_t ci[16];
                vistore(ci, c[t]);
                const double da = a[b].d[t0 + t];
                for (int r = 0; r < 16; ++r) acc[t][r] += (double)ci[r] * ((double)dw[r] * da);
            }
        }
        for (int t = 0; t < NT; ++t)
            for (int r = 0; r < 16; ++r) out[t0 + t][r] = (float)acc[t][r];
    }
};

// lane b mod 32: l = fma(f(dw*da), C, l); butterfly 16, 8, 4, 2, 1
struct Mmvq32 : Blocks32 {
    template <int NT>
    E0_INLINE void run(const Block32* w, const Act* a, int64_t k, const Tree& tree, int t0, float (*out)[16]) {
        const int64_t nb = k / 32;
        vf sum[NT];
        tree_sum<NT>(tree, [&](int lane, vf* l) __attribute__((always_inline)) {
            for (int t = 0; t < NT; ++t) l[t] = vset(0.0f);
            for (int64_t b = lane; b < nb; b += 32) {
                if (E0_FAULT(LANES_ONCE) && b >= 32) break;
                vi c[NT];
                dots32<NT>(w[b].w, a[b], t0, c);
                vf dw = vload(block_scale(w, b, nb));
                for (int t = 0; t < NT; ++t) l[t] = accumulate(vmul(dw, vset(a[b].d[t0 + t])), vcvt(c[t]), l[t]);
            }
        }, sum);
        for (int t = 0; t < NT; ++t) vstore(out[t0 + t], sum[t]);
    }
};

// acc = fma(f(dw*da), C, acc)
struct Mmq32 : Blocks32 {
    template <int NT>
    E0_INLINE void run(const Block32* w, const Act* a, int64_t k, const Tree&, int t0, float (*out)[16]) {
        const int64_t nb = k / 32;
        vf acc[NT];
        for (int t = 0; t < NT; ++t) acc[t] = vset(0.0f);
        for (int64_t b = 0; b < nb; ++b) {
            vi c[NT];
            dots32<NT>(w[b].w, a[b], t0, c);
            vf dw = vload(block_scale(w, b, nb));
            for (int t = 0; t < NT; ++t) acc[t] = accumulate(vmul(dw, vset(a[b].d[t0 + t])), vcvt(c[t]), acc[t]);
        }
        for (int t = 0; t < NT; ++t) vstore(out[t0 + t], acc[t]);
    }
};

// two matrix steps a block; acc = fma(f(C*dw), da, acc)
struct W1132 : Blocks32 {
    E0_INLINE void run16(const Block32* w, const Act* a, int64_t k, float (*out)[16]) {
        const int64_t nb = k / 32;
        vf acc[16];
        for (int t = 0; t < 16; ++t) acc[t] = vset(0.0f);
        for (int64_t b = 0; b < nb; ++b) {
            frag_acc c;
            start(c, a[b].c[0]);
            mma(c, load_a(w[b].w, 0), load_b(a[b], 0));
            mma(c, load_a(w[b].w, 1), load_b(a[b], 1));
            vf dw = vload(block_scale(w, b, nb));
            for (int t = 0; t < 16; ++t) acc[t] = accumulate(vmul(vcvt(whole_dot(c.x[t])), dw), vset(a[b].d[t]), acc[t]);
        }
        for (int t = 0; t < 16; ++t) vstore(out[t], acc[t]);
    }
};

}  // namespace E0_ISA
}  // namespace e0
