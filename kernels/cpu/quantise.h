// Activation quantisers, one block of 32 at a time.  Edges: a zero block, a scale that underflows to 0 or an infinite reciprocal
// give d = 0 and codes 0; a non-finite input gives d and s NaN, codes 0; codes clamp to +-127.
#pragma once
#include <cmath>

#include "cpu/types.h"
#include "port/dot.h"

namespace e0 {
namespace E0_ISA {

enum : uint32_t { kNanF32 = 0x7fc00000u };
enum : uint16_t { kNanF16 = 0x7e00 };

E0_INLINE uint16_t store_half(float f) {
#if defined(__F16C__)
    return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    uint32_t u;
    std::memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);      // 65520 and above round to infinity
    if (a < 0x38800000u) {                                       // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24
        float x;
        std::memcpy(&x, &a, 4);
        x += 0.5f;
        std::memcpy(&a, &x, 4);
        return (uint16_t)(sign | (a - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
#endif
}

// Half away from zero.  Adding the float just below 0.5 and truncating is exact for |v| < 2^22: a value below n + 0.5 by one ulp
// stays below n + 1, the tie itself rounds up to it.
E0_INLINE vi round_away(vf v) {
    vi sign = vand(vas_i(v), viset((int32_t)0x80000000u));
    return vtrunc(vadd(v, vas_f(vor(sign, viset(0x3effffff)))));
}
// The factor that the product is divided or multiplied by is finite and the product at most 190 in magnitude (a subnormal scale).
E0_INLINE void store_codes(int8_t* p, vi a, vi b) {
    vi lo = viset(-127), hi = viset(127);
    vstore_i8(p, vimin(vimax(a, lo), hi));
    vstore_i8(p + 16, vimin(vimax(b, lo), hi));
}
E0_INLINE float from_bits(uint32_t u) { float f; std::memcpy(&f, &u, 4); return f; }

struct BlockOut {
    int8_t* codes;
    uint16_t* d16;
    float* d32;
    uint16_t* s;
    E0_INLINE void put(const BlockOut& o, float d, float s) {
        if (o.d32) *o.d32 = d;
        if (o.d16) *o.d16 = d != d ? (uint16_t)kNanF16 : store_half(d);
        if (o.s) *o.s = s != s ? (uint16_t)kNanF16 : store_half(s);
    }
    E0_INLINE void zero(const BlockOut& o, float d, float s) {
        std::memset(o.codes, 0, 32);
        put(o, d, s);
    }
};

template <int Q>
E0_INLINE void quantise_block(const float* x, const BlockOut& o) {
    const vf a = vload(x), b = vload(x + 16);
    const vi mask = viset(0x7fffffff);
    const int32_t top = vhmax(vimax(vand(vas_i(a), mask), vand(vas_i(b), mask)));      // magnitudes order as their bits do
    if (top >= 0x7f800000) return BlockOut::zero(o, from_bits(kNanF32), from_bits(kNanF32));
    const float amax = from_bits((uint32_t)top);
    if (Q == Q_MMVQ) {
        const float sum = vhsum(vadd(a, b));                   // butterfly 16, 8, 4, 2, 1 over the unquantised values
        const float d = amax / 127.0f;
        if (d == 0.0f) return BlockOut::zero(o, 0.0f, sum);
        store_codes(o.codes, round_away(vdiv(a, vset(d))), round_away(vdiv(b, vset(d))));
        BlockOut::put(o, d, sum);
    } else if (Q == Q_MMQ) {
        const float inverse = 127.0f / amax;
        if (amax == 0.0f || from_bits(0x7f800000u) == inverse) return BlockOut::zero(o, 0.0f, 0.0f);
        store_codes(o.codes, round_away(vmul(a, vset(inverse))), round_away(vmul(b, vset(inverse))));
        BlockOut::put(o, 1.0f / inverse, 0.0f);
    } else {                                                   // ggml's two host quantisers: not on any hot path
        const float d = amax / 127.0f;
        const float inverse = Q == GGML_REF ? 1.0f / d : 127.0f / amax;
        if (d == 0.0f || from_bits(0x7f800000u) == inverse) return BlockOut::zero(o, 0.0f, 0.0f);
        int32_t sum = 0;
        for (int i = 0; i < 32; ++i) {
            const float v = x[i] * inverse;
            int32_t c = (int32_t)v;
            const float rest = v - (float)c, half = rest < 0 ? -rest : rest;     // exact
            if (half > 0.5f || (half == 0.5f && (Q == GGML_REF || (c & 1)))) c += rest < 0 ? -1 : 1;
            c = c > 127 ? 127 : c < -127 ? -127 : c;
            o.codes[i] = (int8_t)c;
            sum += c;
        }
        BlockOut::put(o, d, d * (float)sum);
    }
}

// row `row` of x [.., k] into row `to` of out
template <int Q>
static void quantise_row(const float* x, const Codes& out, int64_t to, int64_t k) {
    const int64_t nb = k / 32;
    for (int64_t b = 0; b < nb; ++b) {
        const int64_t i = to * nb + b;
        BlockOut o = {out.codes + to * k + 32 * b, out.d16 ? out.d16 + i : nullptr, out.d32 ? out.d32 + i : nullptr,
                      out.s ? out.s + i : nullptr};
        quantise_block<Q>(x + 32 * b, o);
    }
}

}  // namespace E0_ISA
}  // namespace e0
