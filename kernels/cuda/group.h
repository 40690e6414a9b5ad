// Tile products for Hopper (sm_90a): the contracts and bits of portable/tiles.h, weights in tile form (pack.h), dots by wgmma.
//
// mma.sync holds the issue port while it runs, so the scale arithmetic (three operations an output and 32-block) waits for it; wgmma runs
// beside it.  A warpgroup covers 64 weight rows x NT*8 input rows: one wgmma m64nNk32 gives the dots of a 32-block in int32, which are
// converted and folded while the other warpgroups' products run.  Stages as in tile.h: rows of 128 bytes whose 16-byte chunks are xored
// by row & 7, which is the 128-byte swizzle that the matrix descriptor names.
#pragma once
#include "cuda/tile.h"

namespace e0c {

// c = A * B over 32 of K, nothing added.
template <int N>
struct Width {};
E0_DEV void wgmma_zero(Width<64>, int* c, u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p;\n}\n"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
          "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]),
          "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), "+r"(c[23]),
          "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]), "+r"(c[30]), "+r"(c[31])
        : "l"(a), "l"(b));
}
E0_DEV void wgmma_zero(Width<128>, int* c, u64 a, u64 b) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p;\n}\n"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
          "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]), "+r"(c[15]),
          "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]), "+r"(c[22]), "+r"(c[23]),
          "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]), "+r"(c[29]), "+r"(c[30]), "+r"(c[31]),
          "+r"(c[32]), "+r"(c[33]), "+r"(c[34]), "+r"(c[35]), "+r"(c[36]), "+r"(c[37]), "+r"(c[38]), "+r"(c[39]),
          "+r"(c[40]), "+r"(c[41]), "+r"(c[42]), "+r"(c[43]), "+r"(c[44]), "+r"(c[45]), "+r"(c[46]), "+r"(c[47]),
          "+r"(c[48]), "+r"(c[49]), "+r"(c[50]), "+r"(c[51]), "+r"(c[52]), "+r"(c[53]), "+r"(c[54]), "+r"(c[55]),
          "+r"(c[56]), "+r"(c[57]), "+r"(c[58]), "+r"(c[59]), "+r"(c[60]), "+r"(c[61]), "+r"(c[62]), "+r"(c[63])
        : "l"(a), "l"(b));
}
E0_DEV void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
E0_DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
E0_DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }
E0_DEV void hold(int& x) { asm volatile("" : "+r"(x)::"memory"); }   // keeps uses of a wgmma result behind its wait
E0_DEV void copies_visible() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// K-major operand, 128-byte swizzle, 1024 bytes from one group of eight rows to the next.
E0_DEV u64 operand_at(u32 address) { return ((u64)(address & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }

// NT: n8 tiles of a warpgroup; GR x GC: warpgroups of a block.
template <int NT, int GR, int GC, int stages_>
struct GroupShape {
    static const int nt = NT, gr = GR, gc = GC, stages = stages_;
    static const int bm = GR * 64, bn = GC * NT * 8, threads = GR * GC * 128;
    static const int at_b = bm * 128, at_da = at_b + bn * 128, at_dw = at_da + bn * 16;
    static E0_METHOD int stage_bytes(bool super) { return (at_dw + bm * (super ? 4 : 16) + 1023) & ~1023; }
};

// super: one weight scale per 256 (Q3_K); folded: acc = fma(f(C*dw), da, acc), else acc = fma(C, f(dw*da), acc).
template <class S, bool super, bool folded, bool bare>
E0_DEV void tile_wgmma(const i8* wcodes, const float* wscales, const i8* codes, const float* dt, const i32* plan, int div, int acts, float* out,
                       int M, int Mp, int N, int K, u32* counter) {
    count_launch(counter);
    extern __shared__ __attribute__((aligned(1024))) u8 memory[];
    __shared__ i32 rows[S::bn];
    __shared__ i32 from_row[S::bn];   // an absent input row reads row 0: its column is never stored
    const int stage_bytes = S::stage_bytes(super);
    const int nb = K / 32, steps = K / 128, row_tiles = (Mp + S::bm - 1) / S::bm;
    const int row0 = (E0_BLOCK % row_tiles) * S::bm, tile = E0_BLOCK / row_tiles, t = E0_TID, lane = t & 31;
    const int group = t >> 7, warp = (t >> 5) & 3, gr = group / S::gc, gc = group % S::gc;
    const i32* mine = plan ? plan + (i64)tile * (1 + S::bn) : (const i32*)0;
    const int matrix = plan ? mine[0] : 0;
    if (matrix < 0) return;
    for (int i = t; i < S::bn; i += S::threads) {
        const int n = plan ? mine[1 + i] : (tile * S::bn + i < N ? tile * S::bn + i : -1);
        rows[i] = n;
        from_row[i] = n < 0 ? 0 : n / div;
    }
    __syncthreads();
    const u32 base = (shared_address(memory) + 1023) & ~1023u;

    const int r0 = t >> 3, c0 = t & 7;
    const u32 chunk_to = (u32)(r0 * 128 + ((c0 ^ (r0 & 7)) << 4));
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
        for (int u = 0; u < (S::bn * 4 + S::threads - 1) / S::threads; ++u) {   // column 8*j + 2*q + c of a group's goes to 2*NT*q + 2*j + c
            const int i = u * S::threads + t, b = i / S::bn, r = i % S::bn, in = r % (S::nt * 8);
            const int place = r - in + ((in >> 1) & 3) * (2 * S::nt) + (in >> 3) * 2 + (in & 1);
            if (S::bn * 4 >= (u + 1) * S::threads || i < S::bn * 4)
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

    float acc[S::nt][4];
    int c[S::nt * 4];
    E0_UNROLL
    for (int j = 0; j < S::nt; ++j) {
        E0_UNROLL
        for (int i = 0; i < 4; ++i) {
            acc[j][i] = 0.0f;
            c[4 * j + i] = 0;
        }
    }
    E0_UNROLL
    for (int s = 0; s < S::stages - 1; ++s) {
        if (s < steps) fetch(s, base + s * stage_bytes);
        copies_commit();
    }
    const u32 a_at = (u32)(gr * 64 * 128), b_at = (u32)(S::at_b + gc * S::nt * 8 * 128);
    const u32 da_at = (u32)(S::at_da + (gc * S::nt * 8 + (lane & 3) * 2 * S::nt) * 4);
    const u32 dw_at = (u32)(S::at_dw + (gr * 64 + (lane >> 2) * 8 + warp * 2) * 4);
    u32 from = base, to = base + (S::stages - 1) * stage_bytes;
    const u32 end = base + S::stages * stage_bytes;

#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        copies_wait<S::stages - 2>();
        copies_visible();
        __syncthreads();
        if (!bare && step + S::stages - 1 < steps) fetch(step + S::stages - 1, to);
        copies_commit();
        E0_UNROLL
        for (int b = 0; b < 4; ++b) {
            E0_UNROLL
            for (int i = 0; i < S::nt * 4; ++i) hold(c[i]);
            wgmma_begin();
            wgmma_zero(Width<S::nt * 8>(), c, operand_at(from + a_at + 32 * b), operand_at(from + b_at + 32 * b));
            wgmma_commit();
            float dw[2], da[2 * S::nt];
            load_floats2(dw, from + dw_at + (super ? 0 : b * S::bm * 4));
            E0_UNROLL
            for (int i = 0; i < S::nt / 2; ++i) load_floats4(da + 4 * i, from + da_at + b * S::bn * 4 + 16 * i);
            wgmma_wait<0>();
            E0_UNROLL
            for (int i = 0; i < S::nt * 4; ++i) hold(c[i]);
            E0_UNROLL
            for (int j = 0; j < S::nt; ++j) {
                E0_UNROLL
                for (int i = 0; i < 4; ++i) {
                    const float dot = __int2float_rn(c[4 * j + i]), w1 = dw[i >> 1], a1 = da[2 * j + (i & 1)];
                    if (folded) acc[j][i] = __fmaf_rn(__fmul_rn(dot, w1), a1, acc[j][i]);
                    else acc[j][i] = __fmaf_rn(dot, __fmul_rn(w1, a1), acc[j][i]);
                }
            }
        }
        from = from + stage_bytes == end ? base : from + stage_bytes;
        to = to + stage_bytes == end ? base : to + stage_bytes;
    }
    E0_UNROLL
    for (int j = 0; j < S::nt; ++j) {
        E0_UNROLL
        for (int i = 0; i < 4; ++i) {
            const int to_row = rows[gc * S::nt * 8 + j * 8 + 2 * (lane & 3) + (i & 1)];
            const int row = row0 + gr * 64 + warp * 16 + (i >> 1) * 8 + (lane >> 2);
            if (to_row >= 0 && row < M) out[(i64)to_row * M + row] = acc[j][i];
        }
    }
}

#ifndef E0_GROUP_SHAPE
#define E0_GROUP_SHAPE 8, 2, 2, 4
#define E0_GROUP_BLOCKS 1
#endif
typedef GroupShape<E0_GROUP_SHAPE> Groups;

}  // namespace e0c

#define E0_GROUP_KERNEL(name, super, folded, bare)                                                                                     \
    extern "C" __global__ void __launch_bounds__(e0c::Groups::threads, E0_GROUP_BLOCKS)                                                \
        name(const e0p::i8* wcodes, const float* wscales, const e0p::i8* codes, const float* dt, const e0p::i32* plan, int div, int acts, \
             float* out, int M, int Mp, int N, int K, e0p::u32* counter) {                                                             \
        e0c::tile_wgmma<e0c::Groups, super, folded, bare>(wcodes, wscales, codes, dt, plan, div, acts, out, M, Mp, N, K, counter);     \
    }
E0_GROUP_KERNEL(e0_group_w11, false, true, false)         // Q8_0 and IQ4_NL
E0_GROUP_KERNEL(e0_group_w11_super, true, false, false)   // Q3_K
E0_GROUP_KERNEL(e0_group_mmq, false, false, false)        // Q8_0 and IQ4_NL
E0_GROUP_KERNEL(e0_group_w11_bare, false, true, true)     // the inner loop alone, for the benchmark
E0_GROUP_KERNEL(e0_group_w11_super_bare, true, false, true)
