// Tile products for NVIDIA, sm_80 and up: the contracts of portable/tiles.h and their bits, from weights in tile form (pack.h).
//
// A block of warps covers BM weight rows x BN input rows; cp.async brings 128 of K a stage into `stages` buffers, rows of 128 bytes with
// their 16-byte chunks xored by row & 7, so that ldmatrix meets no bank twice.  One mma m16n8k32 gives the integer dots of a 32-block.
//
// The scales are the limit (each dot is used once), so the int -> float conversion is made part of the arithmetic: the accumulator
// starts at the bits of M = 1.5*2^23, and what comes out is the float M + C, exact for |C| < 2^22.
//   w11, 32-blocks:  f(C*dw) = fma(M + C, dw, -M*dw), as M*dw is exact for an f16 dw: two fma an output and no conversion
//   mmq, and w11 of Q3_K: C = (M + C) - M, then fma(C, f(dw*da), acc)
// No sum is ever -0 (f16 scales cannot underflow a product), so the sign of a zero f(C*dw) does not show.
#pragma once
#include "port/port.h"

namespace e0c {
using namespace e0p;

E0_DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
E0_DEV void copy16(u32 to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)); }
E0_DEV void copy4(u32 to, const void* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from)); }
E0_DEV void copies_commit() { asm volatile("cp.async.commit_group;"); }
template <int pending>
E0_DEV void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending)); }
E0_DEV void load_matrices(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
E0_DEV void load_floats4(float* r, u32 address) {
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(address));
}
E0_DEV void load_floats2(float* r, u32 address) {
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r[0]), "=f"(r[1]) : "r"(address));
}

// MT x NT: m16 and n8 tiles of a warp (MT = 4: scales come 64 rows at a time); WR x WC: warps of a block.
template <int MT, int NT, int WR, int WC, int stages_>
struct TileShape {
    static const int mt = MT, nt = NT, wr = WR, wc = WC, stages = stages_;
    static const int bm = WR * MT * 16, bn = WC * NT * 8, threads = WR * WC * 32;
    static const int at_b = bm * 128, at_da = at_b + bn * 128, at_dw = at_da + bn * 16;
};

// super: one weight scale per 256 (Q3_K); folded: the two-fma form.  bare: no copies after the first stages (the inner loop alone).
template <class S, bool super, bool folded, bool bare>
E0_DEV void tile_cuda(const i8* wcodes, const float* wscales, const i8* codes, const float* dt, const i32* plan, int div, int acts, float* out,
                      int M, int Mp, int N, int K, u32* counter) {
    count_launch(counter);
    extern __shared__ __attribute__((aligned(128))) u8 memory[];
    __shared__ i32 rows[S::bn];
    __shared__ i32 from_row[S::bn];   // an absent input row reads row 0: its column is never stored
    const int stage_bytes = S::at_dw + S::bm * (super ? 4 : 16);
    const int nb = K / 32, steps = K / 128, row_tiles = Mp / S::bm;
    const int row0 = (E0_BLOCK % row_tiles) * S::bm, tile = E0_BLOCK / row_tiles, t = E0_TID, lane = t & 31, warp = t >> 5;
    const int wr = warp / S::wc, wc = warp % S::wc;
    const i32* mine = plan ? plan + (i64)tile * (1 + S::bn) : (const i32*)0;
    const int matrix = plan ? mine[0] : 0;
    if (matrix < 0) return;
    for (int i = t; i < S::bn; i += S::threads) {
        const int n = plan ? mine[1 + i] : (tile * S::bn + i < N ? tile * S::bn + i : -1);
        rows[i] = n;
        from_row[i] = n < 0 ? 0 : n / div;
    }
    __syncthreads();
    const u32 base = shared_address(memory);

    // What this thread copies: 16-byte chunk t & 7 of every threads/8-th row, and scales.
    const int r0 = t >> 3, c0 = t & 7;
    const u32 chunk_to = (u32)(r0 * 128 + ((c0 ^ (r0 & 7)) << 4));      // threads/8 is a multiple of 8: row & 7 stays
    const i8* w_from = wcodes + ((i64)matrix * Mp + row0 + r0) * K + c0 * 16;
    const i8* a_from = codes + c0 * 16;
    const float* dw_from = wscales + (i64)matrix * (super ? nb / 8 : nb) * Mp + row0;
    auto fetch = [&](int step, u32 to) {
        E0_UNROLL
        for (int u = 0; u < S::bm * 8 / S::threads; ++u)
            copy16(to + chunk_to + u * S::threads * 16, w_from + (i64)(u * (S::threads / 8)) * K + step * 128);
        E0_UNROLL
        for (int u = 0; u < S::bn * 8 / S::threads; ++u)
            copy16(to + S::at_b + chunk_to + u * S::threads * 16, a_from + (i64)from_row[r0 + u * (S::threads / 8)] * K + step * 128);
        E0_UNROLL
        for (int u = 0; u < S::bn * 4 / S::threads; ++u) {   // column 8*j + 2*q + c of a warp's columns goes to 2*NT*q + 2*j + c
            const int i = u * S::threads + t, b = i / S::bn, r = i % S::bn, in = r % (S::nt * 8);
            const int place = r - in + ((in >> 1) & 3) * (2 * S::nt) + (in >> 3) * 2 + (in & 1);
            copy4(to + S::at_da + (b * S::bn + place) * 4, dt + (i64)(step * 4 + b) * acts + from_row[r]);
        }
        const int runs = super ? 1 : 4;
        E0_UNROLL
        for (int u = 0; u < (runs * S::bm / 4 + S::threads - 1) / S::threads; ++u) {
            const int i = u * S::threads + t, b = i / (S::bm / 4), r = i % (S::bm / 4) * 4;
            if (runs * S::bm / 4 >= (u + 1) * S::threads || i < runs * S::bm / 4)
                copy16(to + S::at_dw + i * 16, dw_from + (i64)(super ? step / 2 : step * 4 + b) * Mp + r);
        }
    };

    float acc[S::mt][S::nt][4];
    E0_UNROLL
    for (int m = 0; m < S::mt; ++m) {
        E0_UNROLL
        for (int n = 0; n < S::nt; ++n) {
            E0_UNROLL
            for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.0f;
        }
    }
    const float magic = 12582912.0f;
    u32 start[4];   // kept in registers of its own, so that no mma needs moves before it
    E0_UNROLL
    for (int i = 0; i < 4; ++i) asm volatile("mov.b32 %0, 0x4B400000;" : "=r"(start[i]));

    E0_UNROLL
    for (int s = 0; s < S::stages - 1; ++s) {
        if (s < steps) fetch(s, base + s * stage_bytes);
        copies_commit();
    }
    const u32 a_at = (u32)((wr * S::mt * 16 + (lane & 15)) * 128), a_chunk = (u32)(((lane >> 4) ^ (lane & 7)) << 4);
    const u32 b_at = (u32)(S::at_b + (wc * S::nt * 8 + (lane & 7) + ((lane >> 4) << 3)) * 128), b_chunk = (u32)((((lane >> 3) & 1) ^ (lane & 7)) << 4);
    const u32 da_at = (u32)(S::at_da + (wc * S::nt * 8 + (lane & 3) * 2 * S::nt) * 4);
    const u32 dw_at = (u32)(S::at_dw + (wr * S::mt * 16 + (lane >> 2) * 2 * S::mt) * 4);
    u32 from = base, to = base + (S::stages - 1) * stage_bytes;
    const u32 end = base + S::stages * stage_bytes;

#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        copies_wait<S::stages - 2>();
        __syncthreads();
        if (!bare && step + S::stages - 1 < steps) fetch(step + S::stages - 1, to);
        copies_commit();
        E0_UNROLL
        for (int b = 0; b < 4; ++b) {
            float da[2 * S::nt];
            u32 fb[2 * S::nt];
            E0_UNROLL
            for (int i = 0; i < S::nt / 2; ++i) load_matrices(fb + 4 * i, from + b_at + i * 16 * 128 + (b_chunk ^ (b << 5)));
            E0_UNROLL
            for (int i = 0; i < S::nt / 2; ++i) load_floats4(da + 4 * i, from + da_at + b * S::bn * 4 + 16 * i);
            E0_UNROLL
            for (int m = 0; m < S::mt; ++m) {
                u32 fa[4];
                float dw[2], shift[2];
                load_matrices(fa, from + a_at + m * 16 * 128 + (a_chunk ^ (b << 5)));
                load_floats2(dw, from + dw_at + (super ? 0 : b * S::bm * 4) + 8 * m);
                if (folded) {
                    shift[0] = __fmul_rn(dw[0], -magic);
                    shift[1] = __fmul_rn(dw[1], -magic);
                }
                E0_UNROLL
                for (int n = 0; n < S::nt; ++n) {
                    u32 c[4];
                    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[2 * n]), "r"(fb[2 * n + 1]), "r"(start[0]), "r"(start[1]),
                                   "r"(start[2]), "r"(start[3]));
                    E0_UNROLL
                    for (int i = 0; i < 4; ++i) {
                        float& sum = acc[m][n][i];
                        const float w1 = dw[i >> 1], a1 = da[2 * n + (i & 1)], shifted = from_bits(c[i]);
                        if (folded) sum = __fmaf_rn(__fmaf_rn(shifted, w1, shift[i >> 1]), a1, sum);
                        else sum = __fmaf_rn(__fadd_rn(shifted, -magic), __fmul_rn(w1, a1), sum);
                    }
                }
            }
        }
        from = from + stage_bytes == end ? base : from + stage_bytes;
        to = to + stage_bytes == end ? base : to + stage_bytes;
    }
    E0_UNROLL
    for (int n = 0; n < S::nt; ++n) {
        E0_UNROLL
        for (int c = 0; c < 2; ++c) {
            const int to_row = rows[wc * S::nt * 8 + n * 8 + 2 * (lane & 3) + c];
            if (to_row < 0) continue;
            E0_UNROLL
            for (int m = 0; m < S::mt; ++m) {
                E0_UNROLL
                for (int h = 0; h < 2; ++h) {
                    const int row = row0 + wr * S::mt * 16 + m * 16 + h * 8 + (lane >> 2);
                    if (row < M) out[(i64)to_row * M + row] = acc[m][n][2 * h + c];
                }
            }
        }
    }
}

#ifndef E0_TILE_SHAPE
#define E0_TILE_SHAPE 4, 4, 2, 4, 3
#define E0_TILE_BLOCKS 2
#endif
typedef TileShape<E0_TILE_SHAPE> Shape;

}  // namespace e0c

#define E0_TILE_KERNEL(name, super, folded, bare)                                                                                      \
    extern "C" __global__ void __launch_bounds__(e0c::Shape::threads, E0_TILE_BLOCKS)                                                  \
        name(const e0p::i8* wcodes, const float* wscales, const e0p::i8* codes, const float* dt, const e0p::i32* plan, int div, int acts, \
             float* out, int M, int Mp, int N, int K, e0p::u32* counter) {                                                             \
        e0c::tile_cuda<e0c::Shape, super, folded, bare>(wcodes, wscales, codes, dt, plan, div, acts, out, M, Mp, N, K, counter);       \
    }
E0_TILE_KERNEL(e0_tile_w11, false, true, false)         // Q8_0 and IQ4_NL
E0_TILE_KERNEL(e0_tile_w11_super, true, false, false)   // Q3_K
E0_TILE_KERNEL(e0_tile_mmq, false, false, false)        // Q8_0 and IQ4_NL
E0_TILE_KERNEL(e0_tile_w11_bare, false, true, true)     // the inner loop alone, for the benchmark
E0_TILE_KERNEL(e0_tile_w11_super_bare, true, false, true)
