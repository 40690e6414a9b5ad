// Activation quantisers `mmvq` and `mmq`, SwiGLU with its store, and the exponential alone.
//
// One wave takes one block of 32, a lane one value.  mmvq: d = amax/127, code = round_half_away(x/d), d and the butterfly sum of x
// kept as f16.  mmq: r = 127/amax, code = round_half_away(x*r), d = 1/r kept as f32.
#pragma once
#include "port/port.h"
#define E0_EXP_FN E0_DEV
#if defined(E0_CPU)
#undef E0_EXP_FN
#endif
#include "port/exp.h"

namespace e0p {

#if defined(E0_CPU)
E0_DEV float exp32(float x) { return e0::E0_ISA::exp1(x); }
#else
struct ExpOps {
    typedef float F;
    typedef i32 I;
    static E0_METHOD F set(float x) { return x; }
    static E0_METHOD I iset(i32 x) { return x; }
    static E0_METHOD F add(F a, F b) { return a + b; }
    static E0_METHOD F sub(F a, F b) { return a - b; }
    static E0_METHOD F mul(F a, F b) { return a * b; }
    static E0_METHOD F fma(F a, F b, F c) { return fma32(a, b, c); }
    static E0_METHOD F at_most(F x, float c) { return x > c ? c : x; }
    static E0_METHOD F at_least(F x, float c) { return x < c ? c : x; }
    static E0_METHOD I bits(F x) { return (I)e0p::bits(x); }
    static E0_METHOD I isub(I a, I b) { return (I)((u32)a - (u32)b); }
    static E0_METHOD I half(I a) { return a >> 1; }
    static E0_METHOD F pow2(I k) { return from_bits((u32)(k + 127) << 23); }
};
E0_DEV float exp32(float x) { return exp_form<ExpOps>(x); }
#endif

// H = f(f(g / f(1 + E(-g))) * u)
E0_DEV float swiglu(float g, float u) {
    const float denominator = 1.0f + exp32(-g);
    const float silu = divide(g, denominator);
    return silu * u;
}

E0_DEV i8 round_half_away(float v) {
    if (v >= 127.0f) return 127;
    if (v <= -127.0f) return -127;
    int i = (int)v;                       // toward zero; v - i is exact
    const float rest = v - (float)i;
    if (rest >= 0.5f) ++i;
    if (rest <= -0.5f) --i;
    return (i8)i;
}

// The store of one block from its 32 values; s is null where the quantiser has none.
template <bool mmq>
E0_DEV void store_block(float* v, i8* codes, u16* d16, float* d32, u16* s16) {
    const float nan = from_bits(0x7fc00000u);
    E0_LANES(u32, top);
    E0_LANES(float, sum);
    E0_EACH_LANE(l) {
        E0_L(top, l) = bits(E0_L(v, l)) & 0x7fffffffu;   // magnitudes order like integers, infinities and NaNs above all
        E0_L(sum, l) = E0_L(v, l);
    }
    lanes_max(top);
    if (!mmq) lanes_sum<16>(sum);
    E0_EACH_LANE(l) {
        const bool finite = E0_L(top, l) < 0x7f800000u;
        const float amax = from_bits(E0_L(top, l)), x = E0_L(v, l);
        float d = nan;
        i8 code = 0;
        if (finite && mmq) {
            const float r = divide(127.0f, amax);
            if (bits(r) == 0x7f800000u) d = 0.0f;        // amax = 0, or so small that the reciprocal is infinite
            else {
                d = divide(1.0f, r);
                code = round_half_away(x * r);
            }
        } else if (finite) {
            d = divide(amax, 127.0f);
            if (d != 0.0f) code = round_half_away(divide(x, d));
        }
        codes[l] = code;
        if (l == 0) {
            if (mmq) *d32 = d;
            else {
                *d16 = float_to_half(d);
                *s16 = finite ? float_to_half(E0_L(sum, l)) : (u16)0x7e00;
            }
        }
    }
}

#define E0_QUANTISE_WAVES 4
template <bool mmq>
E0_DEV void quantise_rows(const float* x, i64 blocks, i8* codes, u16* d16, float* d32, u16* s16, u32* counter) {
    count_launch(counter);
    E0_FOR_WAVES(w, E0_QUANTISE_WAVES) {
        const i64 b = (i64)E0_BLOCK * E0_QUANTISE_WAVES + w;
        if (b < blocks) {
            E0_LANES(float, v);
            E0_EACH_LANE(l) E0_L(v, l) = x[b * 32 + l];
            store_block<mmq>(v, codes + b * 32, d16 + b, d32 + b, s16 + b);
        }
    }
}
// gate, up, h: [pairs, width]; h (f32) may be null.
template <bool mmq>
E0_DEV void swiglu_rows(const float* gate, const float* up, i64 blocks, float* h, i8* codes, u16* d16, float* d32, u16* s16,
                        u32* counter) {
    count_launch(counter);
    E0_FOR_WAVES(w, E0_QUANTISE_WAVES) {
        const i64 b = (i64)E0_BLOCK * E0_QUANTISE_WAVES + w;
        if (b < blocks) {
            E0_LANES(float, v);
            E0_EACH_LANE(l) {
                const i64 i = b * 32 + l;
                E0_L(v, l) = swiglu(gate[i], up[i]);
                if (h) h[i] = E0_L(v, l);
            }
            store_block<mmq>(v, codes + b * 32, d16 + b, d32 + b, s16 + b);
        }
    }
}

}  // namespace e0p

E0_KERNEL(128) e0_quantise_mmvq(const float* x, e0p::i64 blocks, e0p::i8* codes, e0p::u16* d, e0p::u16* s, e0p::u32* counter) {
    e0p::quantise_rows<false>(x, blocks, codes, d, (float*)0, s, counter);
}
E0_KERNEL(128) e0_quantise_mmq(const float* x, e0p::i64 blocks, e0p::i8* codes, float* d, e0p::u32* counter) {
    e0p::quantise_rows<true>(x, blocks, codes, (e0p::u16*)0, d, (e0p::u16*)0, counter);
}
E0_KERNEL(128) e0_swiglu_mmvq(const float* gate, const float* up, e0p::i64 blocks, float* h, e0p::i8* codes, e0p::u16* d, e0p::u16* s,
                              e0p::u32* counter) {
    e0p::swiglu_rows<false>(gate, up, blocks, h, codes, d, (float*)0, s, counter);
}
E0_KERNEL(128) e0_swiglu_mmq(const float* gate, const float* up, e0p::i64 blocks, float* h, e0p::i8* codes, float* d, e0p::u32* counter) {
    e0p::swiglu_rows<true>(gate, up, blocks, h, codes, (e0p::u16*)0, d, (e0p::u16*)0, counter);
}
E0_KERNEL(256) e0_exp(const float* x, e0p::i64 n, float* out, e0p::u32* counter) {
    e0p::count_launch(counter);
    E0_FOR_THREADS(t, 256) {
        const e0p::i64 i = (e0p::i64)E0_BLOCK * 256 + t;
        if (i < n) out[i] = e0p::exp32(x[i]);
    }
}
