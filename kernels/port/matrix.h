// The 16 x 16 x 16 int8 matrix step, one per wave, and its 16 x 16 x 32 pair.
//
// FragA: 16 rows of 16 bytes, row r at a + r*lda.  FragB: 16 columns of 16 bytes, column c at b + c*ldb.  Both lie in shared memory,
// on addresses divisible by 4 (16 on AMD).  Acc holds the 16 x 16 int32 sums, Acc::n of them per lane; element i of a lane sits at
// row(lane, i), col(lane, i).  Sums are exact, so every build gives the same integers whatever its instruction.
#pragma once
#include "port/port.h"

namespace e0p {

#if defined(E0_AMD)   // gfx11 wave32: lanes 16..31 repeat the operand rows of lanes 0..15; rows alternate between the half-waves
typedef int v4i __attribute__((ext_vector_type(4)));
typedef int v8i __attribute__((ext_vector_type(8)));
struct FragA { v4i v; };
struct FragB { v4i v; };
struct Acc {
    static const int n = 8;
    v8i x;
    E0_METHOD int get(int i) const { return x[i]; }
    static E0_METHOD int row(int lane, int i) { return 2 * i + (lane >> 4); }
    static E0_METHOD int col(int lane, int) { return lane & 15; }
};
E0_DEV void load_a(FragA& f, const i8* a, int lda) { f.v = *(const v4i*)(a + (E0_TID & 15) * lda); }
E0_DEV void load_b(FragB& f, const i8* b, int ldb) { f.v = *(const v4i*)(b + (E0_TID & 15) * ldb); }
E0_DEV void clear(Acc& c) { c.x = (v8i)(0); }
E0_DEV void step16(Acc& c, const FragA& a, const FragB& b) {
    c.x = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a.v, true, b.v, c.x, false);
}
E0_DEV void step32(Acc& c, const FragA& a0, const FragA& a1, const FragB& b0, const FragB& b1) {
    step16(c, a0, b0);
    step16(c, a1, b1);
}
#elif defined(E0_NV)  // two 8-column halves; the fragment layouts are those the PTX ISA documents for m16n8k16 and m16n8k32
struct FragA { u32 v[2]; };
struct FragB { u32 v[2]; };
struct Acc {
    static const int n = 8;
    int x[8];
    E0_METHOD int get(int i) const { return x[i]; }
    static E0_METHOD int row(int lane, int i) { return (lane >> 2) + ((i >> 1) & 1) * 8; }
    static E0_METHOD int col(int lane, int i) { return (lane & 3) * 2 + (i & 1) + (i >> 2) * 8; }
};
E0_DEV void load_a(FragA& f, const i8* a, int lda) {
    const int lane = E0_TID & 31;
    const i8* p = a + (lane >> 2) * lda + (lane & 3) * 4;
    f.v[0] = load32(p);
    f.v[1] = load32(p + 8 * lda);
}
E0_DEV void load_b(FragB& f, const i8* b, int ldb) {
    const int lane = E0_TID & 31;
    const i8* p = b + (lane >> 2) * ldb + (lane & 3) * 4;
    f.v[0] = load32(p);
    f.v[1] = load32(p + 8 * ldb);
}
E0_DEV void clear(Acc& c) {
    E0_UNROLL
    for (int i = 0; i < 8; ++i) c.x[i] = 0;
}
E0_DEV void step16(Acc& c, const FragA& a, const FragB& b) {
    E0_UNROLL
    for (int h = 0; h < 2; ++h)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+r"(c.x[4 * h]), "+r"(c.x[4 * h + 1]), "+r"(c.x[4 * h + 2]), "+r"(c.x[4 * h + 3])
                     : "r"(a.v[0]), "r"(a.v[1]), "r"(b.v[h]));
}
E0_DEV void step32(Acc& c, const FragA& a0, const FragA& a1, const FragB& b0, const FragB& b1) {
    E0_UNROLL
    for (int h = 0; h < 2; ++h)
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+r"(c.x[4 * h]), "+r"(c.x[4 * h + 1]), "+r"(c.x[4 * h + 2]), "+r"(c.x[4 * h + 3])
                     : "r"(a0.v[0]), "r"(a0.v[1]), "r"(a1.v[0]), "r"(a1.v[1]), "r"(b0.v[h]), "r"(b1.v[h]));
}
#else                 // CPU: one "lane" holds the whole tile
struct FragA { i8 v[256]; };
struct FragB { i8 v[256]; };
struct Acc {
    static const int n = 256;
    int x[256];
    int get(int i) const { return x[i]; }
    static int row(int, int i) { return i >> 4; }
    static int col(int, int i) { return i & 15; }
};
E0_DEV void load_a(FragA& f, const i8* a, int lda) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(f.v + 16 * r, a + r * lda, 16);
}
E0_DEV void load_b(FragB& f, const i8* b, int ldb) {
    for (int c = 0; c < 16; ++c) __builtin_memcpy(f.v + 16 * c, b + c * ldb, 16);
}
E0_DEV void clear(Acc& c) { __builtin_memset(c.x, 0, sizeof c.x); }
E0_DEV void step16(Acc& c, const FragA& a, const FragB& b) {
    for (int r = 0; r < 16; ++r)
        for (int n = 0; n < 16; ++n) {
            int s = 0;
            for (int k = 0; k < 16; ++k) s += a.v[16 * r + k] * b.v[16 * n + k];
            c.x[16 * r + n] += s;
        }
}
E0_DEV void step32(Acc& c, const FragA& a0, const FragA& a1, const FragB& b0, const FragB& b1) {
    step16(c, a0, b0);
    step16(c, a1, b1);
}
#endif

#if defined(E0_CPU)
#define E0_LANE_ID 0
#else
#define E0_LANE_ID (E0_TID & 31)
#endif

}  // namespace e0p
