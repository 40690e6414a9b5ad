// Tile products for sm_90 by mma.sync: the contracts of portable/tiles.h and their bits, operands in pieces (pack.h, stage.h).
//
// A block of warps covers 128 weight rows x BN input rows.  One mma m16n8k32 gives the integer dots of a 32-block.  The scales are the
// limit (each dot is used once), so the int -> float conversion is made part of the arithmetic: the accumulator starts at the bits of
// M = 1.5*2^23, and what comes out is the float M + C, exact for |C| < 2^22.
//   w11, 32-blocks:  f(C*dw) = fma(M + C, dw, -M*dw), as M*dw is exact for an f16 dw: two fma an output and no conversion
//   mmq, and w11 of Q3_K: C = (M + C) - M, then fma(C, f(dw*da), acc)
// No sum is ever -0 (f16 scales cannot underflow a product), so the sign of a zero f(C*dw) does not show.
#pragma once
#include "cuda/stage.h"

namespace e0c {

E0_DEV void load_matrices(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

// NT: n8 tiles of a warp, whose rows are four m16 tiles; WC: warps side by side (two above each other).  128 registers of sums a thread
// (NT = 8) leave one block of four warps or two on a multiprocessor, and that is the faster one: its loop loads the least an mma.
template <int NT, int WC, int stages_>
struct TileShape {
    static const int nt = NT, wc = WC, stages = stages_, bn = WC * NT * 8, warps = 2 * WC, threads = warps * 32;
};

// super: one weight scale per 256 (Q3_K); folded: the two-fma form.  bare: no copies after the first stages (the inner loop alone).
template <class S, bool super, bool folded, bool bare>
E0_DEV void tile_cuda(const i8* wcodes, const float* wscales, const i8* staged, const float* scales, const i32* plan, float* out, int M,
                      int row_tiles, int N, int K, u32* counter) {
    count_launch(counter);
    extern __shared__ __attribute__((aligned(1024))) u8 memory[];
    __shared__ u64 barriers[2 * S::stages];
    const int steps = K / 128, tile = E0_BLOCK / row_tiles, t = E0_TID, lane = t & 31, warp = t >> 5, wr = warp / S::wc, wc = warp % S::wc;
    const i32* mine = plan ? plan + (i64)tile * (1 + S::bn) : (const i32*)0;
    const int matrix = plan ? mine[0] : 0;
    if (matrix < 0) return;
    const i64 piece = (i64)matrix * row_tiles + E0_BLOCK % row_tiles;
    Pipeline<S::bn, S::stages, S::warps, super> pipe;
    pipe.begin(memory, barriers, wcodes + piece * steps * (128 * 128), wscales + piece * (super ? steps / 2 : steps * 4) * 128,
               staged + (i64)tile * steps * (S::bn * 128), scales + (i64)tile * steps * (4 * S::bn), steps);

    float acc[4][S::nt][4];
    E0_UNROLL
    for (int m = 0; m < 4; ++m) {
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
    const u32 a_at = (u32)((wr * 64 + (lane & 15)) * 128), a_chunk = (u32)(((lane >> 4) ^ (lane & 7)) << 4);
    const u32 b_at = (u32)(pipe.at_b + (wc * S::nt * 8 + (lane & 7) + ((lane >> 4) << 3)) * 128), b_chunk = (u32)((((lane >> 3) & 1) ^ (lane & 7)) << 4);
    const u32 da_at = (u32)(pipe.at_da + (wc * S::nt * 8 + (lane & 3) * 2 * S::nt) * 4);
    const u32 dw_at = (u32)(pipe.at_dw + (wr * 64 + (lane >> 2) * 8) * 4);
    int slot = 0;
    u32 parity = 0;

#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const u32 from = pipe.base + slot * pipe.pitch;
        if (!bare || step < S::stages) barrier_wait(pipe.full + 8 * slot, parity);
        if (!bare && t == 0 && step > 0 && step - 1 + S::stages < steps) {   // the slot of the step before: no warp is waited for long
            const int last = slot == 0 ? S::stages - 1 : slot - 1;
            barrier_wait(pipe.empty + 8 * last, slot == 0 ? parity ^ 1 : parity);
            pipe.fetch(step - 1 + S::stages, last);
        }
        E0_UNROLL
        for (int b = 0; b < 4; ++b) {
            float da[2 * S::nt];
            u32 fb[2 * S::nt];
            E0_UNROLL
            for (int i = 0; i < S::nt / 2; ++i) load_matrices(fb + 4 * i, from + b_at + i * 16 * 128 + (b_chunk ^ (b << 5)));
            E0_UNROLL
            for (int i = 0; i < S::nt / 2; ++i) load_floats4(da + 4 * i, from + da_at + b * S::bn * 4 + 16 * i);
            E0_UNROLL
            for (int m = 0; m < 4; ++m) {
                u32 fa[4];
                float dw[2], shift[2];
                load_matrices(fa, from + a_at + m * 16 * 128 + (a_chunk ^ (b << 5)));
                load_floats2(dw, from + dw_at + (super ? 0 : b * 128 * 4) + 8 * m);
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
        __syncwarp();
        if (!bare && lane == 0) barrier_arrive(pipe.empty + 8 * slot);
        if (++slot == S::stages) {
            slot = 0;
            parity ^= 1;
        }
    }
    E0_UNROLL
    for (int n = 0; n < S::nt; ++n) {
        E0_UNROLL
        for (int c = 0; c < 2; ++c) {
            const int column = wc * S::nt * 8 + n * 8 + 2 * (lane & 3) + c, dense = tile * S::bn + column;
            const int to_row = plan ? mine[1 + column] : (dense < N ? dense : -1);
            if (to_row < 0) continue;
            E0_UNROLL
            for (int m = 0; m < 4; ++m) {
                E0_UNROLL
                for (int h = 0; h < 2; ++h) {
                    const int row = E0_BLOCK % row_tiles * 128 + wr * 64 + m * 16 + h * 8 + (lane >> 2);
                    if (row < M) out[(i64)to_row * M + row] = acc[m][n][2 * h + c];
                }
            }
        }
    }
}

typedef TileShape<8, 2, 3> Wide;     // 128 x 128
typedef TileShape<4, 2, 3> Narrow;   // 128 x 64, where few input rows would leave multiprocessors idle

}  // namespace e0c

#define E0_TILE_KERNEL(Shape, name, super, folded, bare)                                                                             \
    extern "C" __global__ void __launch_bounds__(e0c::Shape::threads)                                                                \
        name(const e0p::i8* wcodes, const float* wscales, const e0p::i8* staged, const float* scales, const e0p::i32* plan, float* out, \
             int M, int row_tiles, int N, int K, e0p::u32* counter) {                                                                \
        e0c::tile_cuda<e0c::Shape, super, folded, bare>(wcodes, wscales, staged, scales, plan, out, M, row_tiles, N, K, counter);    \
    }
E0_TILE_KERNEL(Wide, e0_tile_w11, false, true, false)         // Q8_0 and IQ4_NL
E0_TILE_KERNEL(Wide, e0_tile_w11_super, true, false, false)   // Q3_K
E0_TILE_KERNEL(Wide, e0_tile_mmq, false, false, false)        // Q8_0 and IQ4_NL
E0_TILE_KERNEL(Wide, e0_tile_w11_bare, false, true, true)     // the inner loop alone, for the benchmark
E0_TILE_KERNEL(Wide, e0_tile_w11_super_bare, true, false, true)
E0_TILE_KERNEL(Narrow, e0_narrow_w11, false, true, false)
E0_TILE_KERNEL(Narrow, e0_narrow_w11_super, true, false, false)
E0_TILE_KERNEL(Narrow, e0_narrow_mmq, false, false, false)
E0_TILE_KERNEL(Narrow, e0_narrow_w11_bare, false, true, true)
E0_TILE_KERNEL(Narrow, e0_narrow_w11_super_bare, true, false, true)
