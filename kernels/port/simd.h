// Sixteen lanes of float, int32 and double, with one meaning on every instruction set the CPU objects are built for.
//
// Each CPU source that includes this header is compiled once per instruction set (macro E0_ISA names the object); everything
// sits in a namespace of that name, so the linker can never mix two objects' inline functions.  All operations are single IEEE
// roundings: fma is one rounding also where the hardware has none, and nothing may be contracted (-ffp-contract=off).
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef E0_ISA
#error "E0_ISA must name the object that is being built: baseline, avx2 or avx512"
#endif

namespace e0 {
namespace E0_ISA {

#define E0_INLINE static inline __attribute__((always_inline))

// ---- scalar fma with one rounding ------------------------------------------------------------------------------------------
// Without the instruction: the product of two floats is exact in double; the sum is rounded to odd in double, and a value rounded
// to odd with at least two spare bits rounds on to float as if it had been rounded once (Boldo and Melquiond, 2008).
E0_INLINE double add_to_odd(double p, double c) {
    double s = p + c;
    double bb = s - p;
    double err = (p - (s - bb)) + (c - bb);
    uint64_t u; std::memcpy(&u, &s, 8);
    uint64_t e; std::memcpy(&e, &err, 8);
    bool finite = ((u >> 52) & 0x7ff) != 0x7ff;
    if (finite && err != 0.0) {
        if ((e ^ u) >> 63) u -= 1;      // the exact sum lies nearer zero: step back, then set the sticky bit
        u |= 1;
        std::memcpy(&s, &u, 8);
    }
    return s;
}
E0_INLINE float fma1(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    return (float)add_to_odd((double)a * (double)b, (double)c);
#endif
}

// ---- sixteen lanes ---------------------------------------------------------------------------------------------------------
#if defined(__AVX512F__)
struct vf { __m512 r; };
struct vi { __m512i r; };
E0_INLINE vf vload(const float* p) { return {_mm512_loadu_ps(p)}; }
E0_INLINE void vstore(float* p, vf a) { _mm512_storeu_ps(p, a.r); }
E0_INLINE vf vset(float x) { return {_mm512_set1_ps(x)}; }
E0_INLINE vf vadd(vf a, vf b) { return {_mm512_add_ps(a.r, b.r)}; }
E0_INLINE vf vsub(vf a, vf b) { return {_mm512_sub_ps(a.r, b.r)}; }
E0_INLINE vf vmul(vf a, vf b) { return {_mm512_mul_ps(a.r, b.r)}; }
E0_INLINE vf vdiv(vf a, vf b) { return {_mm512_div_ps(a.r, b.r)}; }
E0_INLINE vf vfma(vf a, vf b, vf c) { return {_mm512_fmadd_ps(a.r, b.r, c.r)}; }
E0_INLINE vi viload(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
E0_INLINE void vistore(int32_t* p, vi a) { _mm512_storeu_si512(p, a.r); }
E0_INLINE vi viset(int32_t x) { return {_mm512_set1_epi32(x)}; }
E0_INLINE vi viadd(vi a, vi b) { return {_mm512_add_epi32(a.r, b.r)}; }
E0_INLINE vi visub(vi a, vi b) { return {_mm512_sub_epi32(a.r, b.r)}; }
E0_INLINE vf vcvt(vi a) { return {_mm512_cvtepi32_ps(a.r)}; }                      // exact below 2^24 in magnitude
E0_INLINE vf vas_f(vi a) { return {_mm512_castsi512_ps(a.r)}; }
E0_INLINE vi vas_i(vf a) { return {_mm512_castps_si512(a.r)}; }
// min and max as SSE has them: the second operand where either is NaN (a < b ? a : b, a > b ? a : b)
E0_INLINE vf vmin(vf a, vf b) { return {_mm512_min_ps(a.r, b.r)}; }
E0_INLINE vf vmax(vf a, vf b) { return {_mm512_max_ps(a.r, b.r)}; }
E0_INLINE vi vand(vi a, vi b) { return {_mm512_and_si512(a.r, b.r)}; }
E0_INLINE vi vor(vi a, vi b) { return {_mm512_or_si512(a.r, b.r)}; }
E0_INLINE vi vxor(vi a, vi b) { return {_mm512_xor_si512(a.r, b.r)}; }
E0_INLINE vi vimax(vi a, vi b) { return {_mm512_max_epi32(a.r, b.r)}; }
E0_INLINE vi vimin(vi a, vi b) { return {_mm512_min_epi32(a.r, b.r)}; }
E0_INLINE vf vfnma(vf a, vf b, vf c) { return {_mm512_fnmadd_ps(a.r, b.r, c.r)}; }    // c - a*b, one rounding
E0_INLINE vi vtrunc(vf a) { return {_mm512_cvttps_epi32(a.r)}; }
E0_INLINE void vstore_i8(int8_t* p, vi a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(a.r)); }   // low bytes
E0_INLINE int32_t vhmax(vi a) { return _mm512_reduce_max_epi32(a.r); }
// sum of the lanes by an xor butterfly 8, 4, 2, 1
E0_INLINE float vhsum(vf a) {
    __m512 v = _mm512_add_ps(a.r, _mm512_shuffle_f32x4(a.r, a.r, 0x4e));
    v = _mm512_add_ps(v, _mm512_shuffle_f32x4(v, v, 0xb1));
    v = _mm512_add_ps(v, _mm512_permute_ps(v, 0x4e));
    return _mm512_cvtss_f32(_mm512_add_ps(v, _mm512_permute_ps(v, 0xb1)));
}
template <int N> E0_INLINE vi vsll(vi a) { return {_mm512_slli_epi32(a.r, N)}; }
template <int N> E0_INLINE vi vsrl(vi a) { return {_mm512_srli_epi32(a.r, N)}; }
template <int N> E0_INLINE vi vsra(vi a) { return {_mm512_srai_epi32(a.r, N)}; }
#elif defined(__AVX2__)
struct vf { __m256 r[2]; };
struct vi { __m256i r[2]; };
E0_INLINE vf vload(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
E0_INLINE void vstore(float* p, vf a) { _mm256_storeu_ps(p, a.r[0]); _mm256_storeu_ps(p + 8, a.r[1]); }
E0_INLINE vf vset(float x) { __m256 v = _mm256_set1_ps(x); return {{v, v}}; }
#define E0_2(T, op, ...) T o; for (int i_ = 0; i_ < 2; ++i_) o.r[i_] = op(__VA_ARGS__); return o
E0_INLINE vf vadd(vf a, vf b) { E0_2(vf, _mm256_add_ps, a.r[i_], b.r[i_]); }
E0_INLINE vf vsub(vf a, vf b) { E0_2(vf, _mm256_sub_ps, a.r[i_], b.r[i_]); }
E0_INLINE vf vmul(vf a, vf b) { E0_2(vf, _mm256_mul_ps, a.r[i_], b.r[i_]); }
E0_INLINE vf vdiv(vf a, vf b) { E0_2(vf, _mm256_div_ps, a.r[i_], b.r[i_]); }
E0_INLINE vf vfma(vf a, vf b, vf c) { E0_2(vf, _mm256_fmadd_ps, a.r[i_], b.r[i_], c.r[i_]); }
E0_INLINE vi viload(const int32_t* p) { return {{_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 8))}}; }
E0_INLINE void vistore(int32_t* p, vi a) { _mm256_storeu_si256((__m256i*)p, a.r[0]); _mm256_storeu_si256((__m256i*)(p + 8), a.r[1]); }
E0_INLINE vi viset(int32_t x) { __m256i v = _mm256_set1_epi32(x); return {{v, v}}; }
E0_INLINE vi viadd(vi a, vi b) { E0_2(vi, _mm256_add_epi32, a.r[i_], b.r[i_]); }
E0_INLINE vi visub(vi a, vi b) { E0_2(vi, _mm256_sub_epi32, a.r[i_], b.r[i_]); }
E0_INLINE vf vcvt(vi a) { E0_2(vf, _mm256_cvtepi32_ps, a.r[i_]); }
E0_INLINE vf vas_f(vi a) { E0_2(vf, _mm256_castsi256_ps, a.r[i_]); }
E0_INLINE vi vas_i(vf a) { E0_2(vi, _mm256_castps_si256, a.r[i_]); }
E0_INLINE vf vmin(vf a, vf b) { E0_2(vf, _mm256_min_ps, a.r[i_], b.r[i_]); }
E0_INLINE vf vmax(vf a, vf b) { E0_2(vf, _mm256_max_ps, a.r[i_], b.r[i_]); }
E0_INLINE vi vand(vi a, vi b) { E0_2(vi, _mm256_and_si256, a.r[i_], b.r[i_]); }
E0_INLINE vi vor(vi a, vi b) { E0_2(vi, _mm256_or_si256, a.r[i_], b.r[i_]); }
E0_INLINE vi vxor(vi a, vi b) { E0_2(vi, _mm256_xor_si256, a.r[i_], b.r[i_]); }
E0_INLINE vi vimax(vi a, vi b) { E0_2(vi, _mm256_max_epi32, a.r[i_], b.r[i_]); }
E0_INLINE vi vimin(vi a, vi b) { E0_2(vi, _mm256_min_epi32, a.r[i_], b.r[i_]); }
E0_INLINE vf vfnma(vf a, vf b, vf c) { E0_2(vf, _mm256_fnmadd_ps, a.r[i_], b.r[i_], c.r[i_]); }
E0_INLINE vi vtrunc(vf a) { E0_2(vi, _mm256_cvttps_epi32, a.r[i_]); }
E0_INLINE void vstore_i8(int8_t* p, vi a) {
    int32_t t[16]; vistore(t, a);
    for (int i = 0; i < 16; ++i) p[i] = (int8_t)t[i];
}
E0_INLINE int32_t vhmax(vi a) {
    __m256i v = _mm256_max_epi32(a.r[0], a.r[1]);
    __m128i u = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    u = _mm_max_epi32(u, _mm_shuffle_epi32(u, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(u, _mm_shuffle_epi32(u, 0xb1)));
}
E0_INLINE float vhsum(vf a) {
    __m256 v = _mm256_add_ps(a.r[0], a.r[1]);
    __m128 u = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    u = _mm_add_ps(u, _mm_shuffle_ps(u, u, 0x4e));
    return _mm_cvtss_f32(_mm_add_ss(u, _mm_shuffle_ps(u, u, 0xb1)));
}
template <int N> E0_INLINE vi vsll(vi a) { E0_2(vi, _mm256_slli_epi32, a.r[i_], N); }
template <int N> E0_INLINE vi vsrl(vi a) { E0_2(vi, _mm256_srli_epi32, a.r[i_], N); }
template <int N> E0_INLINE vi vsra(vi a) { E0_2(vi, _mm256_srai_epi32, a.r[i_], N); }
#undef E0_2
#else   // baseline: plain loops over the lanes; SSE2 on x86-64, NEON on arm64, whatever the compiler makes of them elsewhere
struct vf { float r[16]; };
struct vi { int32_t r[16]; };
#define E0_16(T, expr) T o; for (int i_ = 0; i_ < 16; ++i_) o.r[i_] = (expr); return o
E0_INLINE vf vload(const float* p) { vf o; std::memcpy(o.r, p, 64); return o; }
E0_INLINE void vstore(float* p, vf a) { std::memcpy(p, a.r, 64); }
E0_INLINE vf vset(float x) { E0_16(vf, x); }
E0_INLINE vf vadd(vf a, vf b) { E0_16(vf, a.r[i_] + b.r[i_]); }
E0_INLINE vf vsub(vf a, vf b) { E0_16(vf, a.r[i_] - b.r[i_]); }
E0_INLINE vf vmul(vf a, vf b) { E0_16(vf, a.r[i_] * b.r[i_]); }
E0_INLINE vf vdiv(vf a, vf b) { E0_16(vf, a.r[i_] / b.r[i_]); }
#if defined(__SSE2__)               // fma1 on two lanes at a time
E0_INLINE __m128 fma_pair(__m128 a, __m128 b, __m128 c) {
    const __m128d p = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b)), cd = _mm_cvtps_pd(c), s = _mm_add_pd(p, cd);
    const __m128d bb = _mm_sub_pd(s, p), err = _mm_add_pd(_mm_sub_pd(p, _mm_sub_pd(s, bb)), _mm_sub_pd(cd, bb));
    const __m128d zero = _mm_setzero_pd();
    const __m128i inexact = _mm_castpd_si128(_mm_or_pd(_mm_cmplt_pd(err, zero), _mm_cmpgt_pd(err, zero)));   // false for a NaN
    const __m128i toward = _mm_srli_epi64(_mm_castpd_si128(_mm_xor_pd(err, s)), 63);
    __m128i u = _mm_sub_epi64(_mm_castpd_si128(s), _mm_and_si128(toward, inexact));
    u = _mm_or_si128(u, _mm_srli_epi64(inexact, 63));
    return _mm_cvtpd_ps(_mm_castsi128_pd(u));
}
E0_INLINE vf vfma(vf a, vf b, vf c) {
    vf o;
    for (int i = 0; i < 16; i += 4) {
        const __m128 x = _mm_loadu_ps(a.r + i), y = _mm_loadu_ps(b.r + i), z = _mm_loadu_ps(c.r + i);
        const __m128 lo = fma_pair(x, y, z), hi = fma_pair(_mm_movehl_ps(x, x), _mm_movehl_ps(y, y), _mm_movehl_ps(z, z));
        _mm_storeu_ps(o.r + i, _mm_movelh_ps(lo, hi));
    }
    return o;
}
#else
E0_INLINE vf vfma(vf a, vf b, vf c) { E0_16(vf, fma1(a.r[i_], b.r[i_], c.r[i_])); }
#endif
E0_INLINE vi viload(const int32_t* p) { vi o; std::memcpy(o.r, p, 64); return o; }
E0_INLINE void vistore(int32_t* p, vi a) { std::memcpy(p, a.r, 64); }
E0_INLINE vi viset(int32_t x) { E0_16(vi, x); }
E0_INLINE vi viadd(vi a, vi b) { E0_16(vi, (int32_t)((uint32_t)a.r[i_] + (uint32_t)b.r[i_])); }
E0_INLINE vi visub(vi a, vi b) { E0_16(vi, (int32_t)((uint32_t)a.r[i_] - (uint32_t)b.r[i_])); }
E0_INLINE vf vcvt(vi a) { E0_16(vf, (float)a.r[i_]); }
E0_INLINE vf vas_f(vi a) { vf o; std::memcpy(o.r, a.r, 64); return o; }
E0_INLINE vi vas_i(vf a) { vi o; std::memcpy(o.r, a.r, 64); return o; }
E0_INLINE vf vmin(vf a, vf b) { E0_16(vf, a.r[i_] < b.r[i_] ? a.r[i_] : b.r[i_]); }
E0_INLINE vf vmax(vf a, vf b) { E0_16(vf, a.r[i_] > b.r[i_] ? a.r[i_] : b.r[i_]); }
E0_INLINE vi vand(vi a, vi b) { E0_16(vi, a.r[i_] & b.r[i_]); }
E0_INLINE vi vor(vi a, vi b) { E0_16(vi, a.r[i_] | b.r[i_]); }
E0_INLINE vi vxor(vi a, vi b) { E0_16(vi, a.r[i_] ^ b.r[i_]); }
E0_INLINE vi vimax(vi a, vi b) { E0_16(vi, a.r[i_] > b.r[i_] ? a.r[i_] : b.r[i_]); }
E0_INLINE vi vimin(vi a, vi b) { E0_16(vi, a.r[i_] < b.r[i_] ? a.r[i_] : b.r[i_]); }
E0_INLINE vf vfnma(vf a, vf b, vf c) {
    for (int i = 0; i < 16; ++i) a.r[i] = -a.r[i];
    return vfma(a, b, c);
}
E0_INLINE vi vtrunc(vf a) { E0_16(vi, (int32_t)a.r[i_]); }
E0_INLINE void vstore_i8(int8_t* p, vi a) { for (int i = 0; i < 16; ++i) p[i] = (int8_t)a.r[i]; }
E0_INLINE int32_t vhmax(vi a) {
    int32_t m = a.r[0];
    for (int i = 1; i < 16; ++i) m = a.r[i] > m ? a.r[i] : m;
    return m;
}
E0_INLINE float vhsum(vf a) {
    for (int m = 8; m; m >>= 1)
        for (int i = 0; i < m; ++i) a.r[i] = a.r[i] + a.r[i + m];
    return a.r[0];
}
template <int N> E0_INLINE vi vsll(vi a) { E0_16(vi, (int32_t)((uint32_t)a.r[i_] << N)); }
template <int N> E0_INLINE vi vsrl(vi a) { E0_16(vi, (int32_t)((uint32_t)a.r[i_] >> N)); }
template <int N> E0_INLINE vi vsra(vi a) { E0_16(vi, a.r[i_] >> N); }
#undef E0_16
#endif

}  // namespace E0_ISA
}  // namespace e0
