// Lanes of the oracle's objects: L weight rows side by side, as int32 and as double.  Included once per instruction set.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace e0_oracle {
namespace E0_ISA {
namespace {

#if defined(__AVX512BW__)
constexpr int L = 16;
#elif defined(__AVX2__)
constexpr int L = 8;
#else
constexpr int L = 4;
#endif
typedef int32_t vi __attribute__((vector_size(4 * L)));
typedef double vd __attribute__((vector_size(8 * L)));

inline vi load(const void* p) { vi v; std::memcpy(&v, p, sizeof v); return v; }

// w0*a0 + w1*a1 in each lane, w as pairs of int16, `pair` two int16.  At most 2*2^14 in magnitude: exact.
inline vi dot2(vi w, int32_t pair) {
#if defined(__AVX512BW__)
    return (vi)_mm512_madd_epi16((__m512i)w, _mm512_set1_epi32(pair));
#elif defined(__AVX2__)
    return (vi)_mm256_madd_epi16((__m256i)w, _mm256_set1_epi32(pair));
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)w, _mm_set1_epi32(pair));
#else
    vi low = (w << 16) >> 16, high = w >> 16;
    return low * (int32_t)(int16_t)(pair & 0xffff) + high * (pair >> 16);
#endif
}

}  // namespace
}  // namespace E0_ISA
}  // namespace e0_oracle
