// Tile products through the matrix step: contracts `mmq` and `w11`, 128 weight rows x 64 input rows a block of eight waves.
//
// Integer dots are exact whatever the instruction, so the order of the float operations is all there is to fix: each output walks
// its 32-blocks in ascending order.
//   32-blocks, mmq: acc = fma(f(dw*da), C, acc)                w11: acc = fma(f(C*dw), da, acc)
//   Q3_K, mmq:      acc = fma(da, fma(C1, f(d*(sc1-32)), f(C0*f(d*(sc0-32)))), acc), C0 and C1 over 16 values
//   Q3_K, w11:      I = sum of (4-code)*(sc-32)*a, acc = fma(I, f(-d*da), acc); (4-code)*(sc-32) fits int8, the other sign does not
//
// plan: null for a dense product (tile t = input rows 64*t ...), else per tile its matrix (-1: none) and 64 input rows (-1: none),
// written by e0_group_pairs.  Input row n reads codes/d row n / div and writes out[n, M].  Grid: ceil(M/128) * tiles, rows fastest.
#pragma once
#include "port/matrix.h"
#include "portable/blocks.h"

namespace e0p {

#define E0_TM 128
#define E0_TN 64
#define E0_TK 4                      /* 32-blocks a stage: half a Q3_K super block */
#define E0_PITCH (E0_TK * 32 + 16)   /* bytes of a staged row: keeps 16-byte alignment and spreads the banks */
#define E0_TILE_WAVES 8
#define E0_TILE_THREADS 256
#define E0_PLAN_STRIDE (1 + E0_TN)

struct TileShared {
    i8 w[E0_TM * E0_PITCH];
    i8 a[E0_TN * E0_PITCH];
    float dw[2 * E0_TK * E0_TM];
    float da[E0_TK * E0_TN];
    i32 rows[E0_TN];
};

// How a format and contract stage weights and fold one 32-block.  `scales` floats a block and row.
template <class W, bool mmq>
struct Plain {
    static const int scales = 1;
    static const bool halves = false;
    static const int bytes = W::bytes, values = 32;
    // Thread t of 256 stages its share of 128 rows x 4 blocks, kb the first block; blocks from nb on and rows from M on are zero.
    static E0_METHOD void stage(TileShared& s, int t, const u8* w, int row0, int M, int kb, int nb) {
        E0_UNROLL
        for (int u = 0; u < E0_TM * E0_TK / E0_TILE_THREADS * 8; ++u) {
            const int i = u * E0_TILE_THREADS + t, q = i & 7, b = (i >> 3) & (E0_TK - 1), r = i / (8 * E0_TK);
            const bool in = row0 + r < M && kb + b < nb;
            store32(s.w + r * E0_PITCH + 32 * b + 4 * q, in ? W::word(w + ((i64)(row0 + r) * nb + kb + b) * W::bytes, q) : 0u);
        }
        E0_UNROLL
        for (int u = 0; u < E0_TM * E0_TK / E0_TILE_THREADS; ++u) {
            const int i = u * E0_TILE_THREADS + t, b = i & (E0_TK - 1), r = i / E0_TK;
            const bool in = row0 + r < M && kb + b < nb;
            s.dw[b * E0_TM + r] = in ? W::scale(w + ((i64)(row0 + r) * nb + kb + b) * W::bytes) : 0.0f;
        }
    }
    static E0_METHOD float fold(float acc, i32 c, i32, const float* dw, float da) {
        return mmq ? fma32(dw[0] * da, (float)c, acc) : fma32((float)c * dw[0], da, acc);
    }
};
template <bool mmq>
struct Super {
    static const int scales = mmq ? 2 : 1;
    static const bool halves = mmq;
    static const int bytes = Q3_K::bytes, values = 256;
    static E0_METHOD void stage(TileShared& s, int t, const u8* w, int row0, int M, int kb, int nb) {
        const int half = (kb >> 2) & 1, ns = nb / 8;
        E0_UNROLL
        for (int u = 0; u < E0_TM * 8 / E0_TILE_THREADS; ++u) {   // one word of qs holds four planes
            const int i = u * E0_TILE_THREADS + t, g = i & 7, r = i >> 3;
            const bool in = row0 + r < M;
            const u8* block = w + ((i64)(row0 + r) * ns + (kb >> 3)) * bytes;
            const u32 hmask = in ? Q3_K::hmask_word(block, g) : 0u, qs = in ? Q3_K::qs_word(block, half, g) : 0u;
            E0_UNROLL
            for (int p = 0; p < 4; ++p) {
                u32 v = Q3_K::code_word(qs, hmask, half, p);
                if (mmq) v = sub_bytes(v, 4);
                else {
                    const i32 sc = in ? Q3_K::sub_scale(block, half * 8 + p * 2 + (g >> 2)) : 0;
                    u32 folded = 0;
                    E0_UNROLL
                    for (int j = 0; j < 32; j += 8) folded |= (u32)(u8)((4 - (i32)((v >> j) & 7)) * sc) << j;
                    v = folded;
                }
                store32(s.w + r * E0_PITCH + 32 * p + 4 * g, v);
            }
        }
        E0_UNROLL
        for (int u = 0; u < E0_TM * E0_TK / E0_TILE_THREADS; ++u) {
            const int i = u * E0_TILE_THREADS + t, b = i & (E0_TK - 1), r = i / E0_TK;
            const bool in = row0 + r < M;
            const u8* block = w + ((i64)(row0 + r) * ns + (kb >> 3)) * bytes;
            const float d = in ? Q3_K::scale(block) : 0.0f;
            if (mmq) {
                E0_UNROLL
                for (int h = 0; h < 2; ++h)
                    s.dw[(2 * b + h) * E0_TM + r] = in ? d * (float)Q3_K::sub_scale(block, half * 8 + b * 2 + h) : 0.0f;
            } else s.dw[b * E0_TM + r] = -d;
        }
    }
    static E0_METHOD float fold(float acc, i32 c0, i32 c1, const float* dw, float da) {
        return mmq ? fma32(da, fma32((float)c1, dw[1], (float)c0 * dw[0]), acc) : fma32((float)c0, dw[0] * da, acc);
    }
};

struct TileSums {
    float f[E0_TN / 16][Acc::n];
};

template <class F, class D>
E0_DEV void tile_product(const u8* weights, const i8* codes, const D* d, const i32* plan, int div, float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    E0_SHARED E0_ALIGN16 TileShared s;
    const int nb = K / 32, mt = (M + E0_TM - 1) / E0_TM;
    const int row0 = (E0_BLOCK % mt) * E0_TM, tile = E0_BLOCK / mt;
    const i32* mine = plan ? plan + (i64)tile * E0_PLAN_STRIDE : (const i32*)0;
    const int matrix = plan ? mine[0] : 0;
    if (matrix < 0) return;
    const u8* w = weights + (i64)matrix * M * (K / F::values) * F::bytes;
    E0_STATE(TileSums, acc, E0_TILE_WAVES);
    E0_FOR_WAVES(wave, E0_TILE_WAVES) {
        E0_UNROLL
        for (int j = 0; j < E0_TN / 16; ++j) {
            E0_UNROLL
            for (int i = 0; i < Acc::n; ++i) E0_AT(acc, wave).f[j][i] = 0.0f;
        }
    }
    E0_FOR_THREADS(t, E0_TILE_THREADS) {
        if (t < E0_TN) s.rows[t] = plan ? mine[1 + t] : (tile * E0_TN + t < N ? tile * E0_TN + t : -1);
    }
    barrier();
    for (int kb = 0; kb < nb; kb += E0_TK) {
        E0_FOR_THREADS(t, E0_TILE_THREADS) {
            F::stage(s, t, w, row0, M, kb, nb);
            E0_UNROLL
            for (int u = 0; u < E0_TN * E0_TK * 8 / E0_TILE_THREADS; ++u) {
                const int i = u * E0_TILE_THREADS + t, q = i & 7, b = (i >> 3) & (E0_TK - 1), r = i / (8 * E0_TK), n = s.rows[r];
                const bool in = n >= 0 && kb + b < nb;
                store32(s.a + r * E0_PITCH + 32 * b + 4 * q, in ? load32(codes + ((i64)(n / div) * nb + kb + b) * 32 + 4 * q) : 0u);
            }
            const int b = t & (E0_TK - 1), n = s.rows[t / E0_TK];
            s.da[b * E0_TN + t / E0_TK] = n >= 0 && kb + b < nb ? act_scale(d, (i64)(n / div) * nb + kb + b) : 0.0f;
        }
        barrier();
        E0_FOR_WAVES(wave, E0_TILE_WAVES) {
            E0_UNROLL
            for (int b = 0; b < E0_TK; ++b) {
                if (kb + b < nb) {   // adding a zero block would turn a sum of -0 into +0
                    FragA a0, a1;
                    load_a(a0, s.w + wave * 16 * E0_PITCH + 32 * b, E0_PITCH);
                    load_a(a1, s.w + wave * 16 * E0_PITCH + 32 * b + 16, E0_PITCH);
                    E0_UNROLL
                    for (int j = 0; j < E0_TN / 16; ++j) {
                        FragB b0, b1;
                        load_b(b0, s.a + j * 16 * E0_PITCH + 32 * b, E0_PITCH);
                        load_b(b1, s.a + j * 16 * E0_PITCH + 32 * b + 16, E0_PITCH);
                        Acc c0, c1;
                        clear(c0);
                        if (F::halves) {
                            clear(c1);
                            step16(c0, a0, b0);
                            step16(c1, a1, b1);
                        } else step32(c0, a0, a1, b0, b1);
                        E0_UNROLL
                        for (int i = 0; i < Acc::n; ++i) {
                            const int r = wave * 16 + Acc::row(E0_LANE_ID, i), n = j * 16 + Acc::col(E0_LANE_ID, i);
                            float dw[2];
                            E0_UNROLL
                            for (int h = 0; h < F::scales; ++h) dw[h] = s.dw[(F::scales * b + h) * E0_TM + r];
                            float& sum = E0_AT(acc, wave).f[j][i];
                            sum = F::fold(sum, c0.get(i), F::halves ? c1.get(i) : 0, dw, s.da[b * E0_TN + n]);
                        }
                    }
                }
            }
        }
        barrier();
    }
    E0_FOR_WAVES(wave, E0_TILE_WAVES) {
        E0_UNROLL
        for (int j = 0; j < E0_TN / 16; ++j) {
            E0_UNROLL
            for (int i = 0; i < Acc::n; ++i) {
                const int row = row0 + wave * 16 + Acc::row(E0_LANE_ID, i), n = s.rows[j * 16 + Acc::col(E0_LANE_ID, i)];
                if (row < M && n >= 0) out[(i64)n * M + row] = E0_AT(acc, wave).f[j][i];
            }
        }
    }
}

}  // namespace e0p

#define E0_TILE_ARGS(D)                                                                                                          \
    const e0p::u8 *w, const e0p::i8 *codes, const D *d, const e0p::i32 *plan, int div, float *out, int M, int N, int K, e0p::u32 *counter
#define E0_TILE_PASS w, codes, d, plan, div, out, M, N, K, counter
E0_KERNEL(256) e0_rows_mmq_q8_0(E0_TILE_ARGS(float)) { e0p::tile_product<e0p::Plain<e0p::Q8_0, true>, float>(E0_TILE_PASS); }
E0_KERNEL(256) e0_rows_w11_q8_0(E0_TILE_ARGS(e0p::u16)) { e0p::tile_product<e0p::Plain<e0p::Q8_0, false>, e0p::u16>(E0_TILE_PASS); }
E0_KERNEL(256) e0_rows_mmq_iq4_nl(E0_TILE_ARGS(float)) { e0p::tile_product<e0p::Plain<e0p::IQ4_NL, true>, float>(E0_TILE_PASS); }
E0_KERNEL(256) e0_rows_w11_iq4_nl(E0_TILE_ARGS(e0p::u16)) { e0p::tile_product<e0p::Plain<e0p::IQ4_NL, false>, e0p::u16>(E0_TILE_PASS); }
E0_KERNEL(256) e0_rows_mmq_q3_k(E0_TILE_ARGS(float)) { e0p::tile_product<e0p::Super<true>, float>(E0_TILE_PASS); }
E0_KERNEL(256) e0_rows_w11_q3_k(E0_TILE_ARGS(e0p::u16)) { e0p::tile_product<e0p::Super<false>, e0p::u16>(E0_TILE_PASS); }
