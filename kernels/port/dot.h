// Sixteen dots of four int8 positions at a time, exact on every instruction set: the rows of a weight tile lie in the lanes, the
// activations of one token are broadcast.
//
// Weight bytes are the factor plus 128 (unsigned, as AVX512-VNNI wants one operand); an accumulator therefore starts at -128 times
// the sum of the activations, which the packing below works out once per block.
#pragma once
#include "port/simd.h"
#include "cpu/types.h"

namespace e0 {
namespace E0_ISA {

#if defined(__AVX512VNNI__)
enum { kDwords = 1 };              // dwords that hold four activations: four int8
#else
enum { kDwords = 2 };              // (a0, a2), (a1, a3) as int16 pairs
#endif

// One 32-block of sixteen tokens.  NC: starting values kept per block: 1 per 32 positions, 2 per 16, 8 per 4.
template <int NC>
struct ActBlock {
    int32_t q[8][16 * kDwords];    // [group of four positions][token]
    float d[16];
    int32_t c[NC][16];
};

struct wgt {                       // one group of a weight tile, split once and used for several tokens
#if defined(__AVX512VNNI__)
    __m512i v;
#elif defined(__AVX2__)
    __m256i even[2], odd[2];
#elif defined(__SSE2__)
    __m128i even[4], odd[4];
#else
    const uint8_t* p;
#endif
};

E0_INLINE wgt load_w(const uint8_t* p) {
    wgt w;
#if defined(__AVX512VNNI__)
    w.v = _mm512_load_si512(p);
#elif defined(__AVX2__)
    for (int i = 0; i < 2; ++i) {
        __m256i v = _mm256_load_si256((const __m256i*)(p + 32 * i));
        w.even[i] = _mm256_and_si256(v, _mm256_set1_epi16(0xff));
        w.odd[i] = _mm256_srli_epi16(v, 8);
    }
#elif defined(__SSE2__)
    for (int i = 0; i < 4; ++i) {
        __m128i v = _mm_load_si128((const __m128i*)(p + 16 * i));
        w.even[i] = _mm_and_si128(v, _mm_set1_epi16(0xff));
        w.odd[i] = _mm_srli_epi16(v, 8);
    }
#else
    w.p = p;
#endif
    return w;
}

// acc + byte . activation over four positions; q: the token's dwords of that group
E0_INLINE vi dot4(vi acc, const wgt& w, const int32_t* q) {
#if defined(__AVX512VNNI__)
    acc.r = _mm512_dpbusd_epi32(acc.r, w.v, _mm512_set1_epi32(q[0]));
#elif defined(__AVX2__)
    __m256i e = _mm256_set1_epi32(q[0]), o = _mm256_set1_epi32(q[1]);
    for (int i = 0; i < 2; ++i)
        acc.r[i] = _mm256_add_epi32(acc.r[i], _mm256_add_epi32(_mm256_madd_epi16(w.even[i], e), _mm256_madd_epi16(w.odd[i], o)));
#elif defined(__SSE2__)
    __m128i e = _mm_set1_epi32(q[0]), o = _mm_set1_epi32(q[1]);
    for (int i = 0; i < 4; ++i) {
        __m128i a = _mm_loadu_si128((const __m128i*)(acc.r + 4 * i));
        a = _mm_add_epi32(a, _mm_add_epi32(_mm_madd_epi16(w.even[i], e), _mm_madd_epi16(w.odd[i], o)));
        _mm_storeu_si128((__m128i*)(acc.r + 4 * i), a);
    }
#else
    int16_t a[4];
    std::memcpy(a, q, 8);
    for (int r = 0; r < 16; ++r) acc.r[r] += w.p[4 * r] * a[0] + w.p[4 * r + 2] * a[1] + w.p[4 * r + 1] * a[2] + w.p[4 * r + 3] * a[3];
#endif
    return acc;
}

E0_INLINE float load_half(uint16_t h) {
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 0x1f, m = h & 0x3ff, u;
    float f = (float)m * 0x1p-24f;                      // a subnormal half, exact
    std::memcpy(&u, &f, 4);
    if (e == 31) u = 0x7f800000u | (m << 13);
    else if (e) u = ((e + 112) << 23) | (m << 13);
    u |= sign;
    std::memcpy(&f, &u, 4);
    return f;
#endif
}

// Scales and starting values of sixteen tokens; sums[g][t] is the sum of the activations of group g.
template <int NC, int Bias>
E0_INLINE void finish_block(ActBlock<NC>& o, const Codes& a, const int64_t* rows, int count, int64_t nb, int64_t b, const vi* sums) {
    for (int t = 0; t < 16; ++t) {
        float d = 0.0f;
        if (t < count) d = a.d32 ? a.d32[rows[t] * nb + b] : load_half(a.d16[rows[t] * nb + b]);
        o.d[t] = d;
    }
    for (int c = 0; c < NC; ++c) {
        vi s = sums[c * (8 / NC)];
        for (int g = 1; g < 8 / NC; ++g) s = viadd(s, sums[c * (8 / NC) + g]);
        vi scaled = Bias == 128 ? vsll<7>(s) : vsll<2>(s);
        vistore(o.c[c], visub(viset(0), scaled));
    }
}

#if defined(__AVX512VNNI__)
// 16 x 16 dwords: r[t] lane g becomes r[g] lane t
E0_INLINE void transpose(__m512i* r) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c);
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int j = 0; j < 4; ++j) {
        const __m512i a = _mm512_shuffle_i32x4(t[j], t[j + 4], 0x88), b = _mm512_shuffle_i32x4(t[j], t[j + 4], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(t[j + 8], t[j + 12], 0x88), d = _mm512_shuffle_i32x4(t[j + 8], t[j + 12], 0xdd);
        r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
        r[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
        r[j + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
        r[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}
#endif

// Rows rows[0..count) of quantised activations to k / 32 blocks of sixteen tokens; tokens from `count` on are zero.
// Bias: what the weight bytes carry on top of their factor (128, or 4 for unfolded Q3_K codes).
template <int NC, int Bias>
static void pack_tokens(ActBlock<NC>* out, const Codes& a, const int64_t* rows, int count, int64_t k) {
    const int64_t nb = k / 32;
#if defined(__AVX512VNNI__)
    for (int64_t b = 0; b < nb; b += 2) {
        const int blocks = nb - b < 2 ? 1 : 2;
        const __mmask16 mask = blocks == 2 ? 0xffff : 0x00ff;
        __m512i r[16];
        for (int t = 0; t < 16; ++t)
            r[t] = t < count ? _mm512_maskz_loadu_epi32(mask, a.codes + rows[t] * k + 32 * b) : _mm512_setzero_si512();
        transpose(r);
        for (int i = 0; i < blocks; ++i) {
            vi sums[8];
            for (int g = 0; g < 8; ++g) {
                _mm512_storeu_si512(out[b + i].q[g], r[8 * i + g]);
                sums[g].r = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), r[8 * i + g]);
            }
            finish_block<NC, Bias>(out[b + i], a, rows, count, nb, b + i, sums);
        }
    }
#else
    for (int64_t b = 0; b < nb; ++b) {
        int32_t sum[8][16] = {};
        for (int t = 0; t < 16; ++t) {
            const int8_t* p = t < count ? a.codes + rows[t] * k + 32 * b : nullptr;
            for (int g = 0; g < 8; ++g) {
                int16_t pair[4] = {0, 0, 0, 0};
                if (p) {
                    const int8_t* v = p + 4 * g;
                    sum[g][t] = v[0] + v[1] + v[2] + v[3];
                    pair[0] = v[0], pair[1] = v[2], pair[2] = v[1], pair[3] = v[3];
                }
                std::memcpy(&out[b].q[g][t * kDwords], pair, 8);
            }
        }
        vi sums[8];
        for (int g = 0; g < 8; ++g) sums[g] = viload(sum[g]);
        finish_block<NC, Bias>(out[b], a, rows, count, nb, b, sums);
    }
#endif
}

// ---- sums over a butterfly -------------------------------------------------------------------------------------------------
// An xor butterfly over lanes is an adder tree over the lane values (float addition commutes).  Visiting the lanes in bit-reversed
// order needs only a small stack: after a lane's value is pushed, `merges` times the two topmost are added.  Lanes beyond the last
// block are idle and hold +0; adding +0 changes nothing but a -0, so one +0 is added at the end where there is an idle lane.
struct Tree {
    int leaves;
    bool idle;
    uint8_t lane[32], merges[32];
};
static inline int tree_node(Tree& t, int used, int lane, int step, int lanes) {
    if (step == lanes) {
        t.lane[t.leaves] = (uint8_t)lane;
        t.merges[t.leaves++] = 0;
        return 1;
    }
    tree_node(t, used, lane, 2 * step, lanes);
    if (lane + step < used) {
        tree_node(t, used, lane + step, 2 * step, lanes);
        ++t.merges[t.leaves - 1];
    }
    return 0;
}
static inline Tree make_tree(int64_t used, int lanes) {
    Tree t;
    t.leaves = 0;
    t.idle = used < lanes;
    tree_node(t, (int)(used < lanes ? used : lanes), 0, 1, lanes);
    return t;
}

// leaf(lane, out): the NT tokens' values of one lane
template <int NT, class Leaf>
E0_INLINE void tree_sum(const Tree& tree, Leaf&& leaf, vf* out) {
    vf stack[6][NT];
    int top = 0;
    for (int i = 0; i < tree.leaves; ++i) {
        vf v[NT];
        leaf(tree.lane[i], v);
        for (int m = tree.merges[i]; m; --m) {
            --top;
            for (int t = 0; t < NT; ++t) v[t] = vadd(stack[top][t], v[t]);
        }
        for (int t = 0; t < NT; ++t) stack[top][t] = v[t];
        ++top;
    }
    for (int t = 0; t < NT; ++t) out[t] = tree.idle ? vadd(stack[0][t], vset(0.0f)) : stack[0][t];
}

}  // namespace E0_ISA
}  // namespace e0
