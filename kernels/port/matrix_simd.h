// The 16x16x16 int8 matrix step of the port header, on SIMD lanes: acc[row][token] += sum over 16 positions of a[row] * b[token].
// Rows lie in the lanes; a fragment of A holds four groups of four positions, the accumulator one register per token.
#pragma once
#include "port/dot.h"

namespace e0 {
namespace E0_ISA {

struct frag_a { wgt g[4]; };                       // 16 rows x 16 positions
struct frag_b { const int32_t* q; };               // 16 tokens x 16 positions, [group][token] in memory
struct frag_acc { vi x[16]; };                     // 16 rows x 16 tokens

// half: which 16 positions of the 32-block
E0_INLINE frag_a load_a(const uint8_t (*w)[64], int half) {
    frag_a f;
    for (int g = 0; g < 4; ++g) f.g[g] = load_w(w[4 * half + g]);
    return f;
}
template <int NC>
E0_INLINE frag_b load_b(const ActBlock<NC>& a, int half) { return {a.q[4 * half]}; }
E0_INLINE void start(frag_acc& c, const int32_t* first) { for (int t = 0; t < 16; ++t) c.x[t] = viset(first[t]); }
E0_INLINE void mma(frag_acc& c, const frag_a& a, const frag_b& b) {
    for (int t = 0; t < 16; ++t)
        for (int g = 0; g < 4; ++g) c.x[t] = dot4(c.x[t], a.g[g], b.q + (16 * g + t) * kDwords);
}

}  // namespace E0_ISA
}  // namespace e0
