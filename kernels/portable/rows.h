// Row products, one wave a weight row and input row: the `mmvq` contract, and `ref` with one thread an output.
//
// out[n, M]: input row n is codes/d row n / div; its weight matrix is ids[n] (null: matrix 0) of consecutive [M, K] matrices.
// A D, U or linear product has ids = null and div = 1; A1 has one n per (token, slot) pair and div = slots; A2 div = 1.
// Grid: ceil(M / rows of a block) * N blocks, rows fastest.
#pragma once
#include "portable/blocks.h"

namespace e0p {

#define E0_ROW_WAVES 4

// 32-blocks: lane b mod 32 adds block b as l = fma(f(dw*da), C, l); butterfly xor 16, 8, 4, 2, 1.
template <class W>
E0_DEV void rows_mmvq(const u8* w, const i8* codes, const u16* d, const i32* ids, int div, float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    const int nb = K / 32, tiles = (M + E0_ROW_WAVES - 1) / E0_ROW_WAVES;
    const int n = E0_BLOCK / tiles, first = (E0_BLOCK % tiles) * E0_ROW_WAVES;
    E0_FOR_WAVES(wave, E0_ROW_WAVES) {
        const int row = first + wave;
        if (row < M && n < N) {
            const u8* wr = w + ((i64)(ids ? ids[n] : 0) * M + row) * nb * W::bytes;
            const i64 at = (i64)(n / div) * nb;
            E0_LANES(float, sum);
            E0_EACH_LANE(l) {
                float s = 0.0f;
                for (int b = l; b < nb; b += 32) {
                    const u8* block = wr + (i64)b * W::bytes;
                    const i8* a = codes + (at + b) * 32;
                    i32 c = 0;
                    E0_UNROLL
                    for (int i = 0; i < 8; ++i) c = dot4(W::word(block, i), load32(a + 4 * i), c);
                    s = fma32(W::scale(block) * act_scale(d, at + b), (float)c, s);
                }
                E0_L(sum, l) = s;
            }
            lanes_sum<16>(sum);
            E0_EACH_LANE(l) {
                if (l == 0) out[(i64)n * M + row] = E0_L(sum, l);
            }
        }
    }
}

// Q3_K: 16 lanes a row, lane 8*half + g over the four planes s = fma(da, dot4(code-4, a)*(sc-32), s); per super block
// l = fma(d, s, l); butterfly 8, 4, 2, 1.  The wave's upper half takes the next row.
E0_DEV void rows_mmvq_q3_k(const u8* w, const i8* codes, const u16* d, const i32* ids, int div, float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    const int ns = K / 256, tiles = (M + 2 * E0_ROW_WAVES - 1) / (2 * E0_ROW_WAVES);
    const int n = E0_BLOCK / tiles, first = (E0_BLOCK % tiles) * 2 * E0_ROW_WAVES;
    E0_FOR_WAVES(wave, E0_ROW_WAVES) {
        if (n < N) {
            const u8* matrix = w + (i64)(ids ? ids[n] : 0) * M * ns * Q3_K::bytes;
            const i64 at = (i64)(n / div) * ns;
            E0_LANES(float, sum);
            E0_EACH_LANE(l) {
                const int row = first + 2 * wave + (l >> 4), half = (l >> 3) & 1, g = l & 7;
                float acc = 0.0f;
                if (row < M) {
                    for (int sb = 0; sb < ns; ++sb) {
                        const u8* block = matrix + ((i64)row * ns + sb) * Q3_K::bytes;
                        const u32 hmask = Q3_K::hmask_word(block, g), qs = Q3_K::qs_word(block, half, g);
                        const i8* a = codes + (at + sb) * 256 + half * 128 + g * 4;
                        float s = 0.0f;
                        E0_UNROLL
                        for (int p = 0; p < 4; ++p) {
                            const u32 code = sub_bytes(Q3_K::code_word(qs, hmask, half, p), 4);
                            const i32 c = dot4(code, load32(a + 32 * p), 0) * Q3_K::sub_scale(block, half * 8 + p * 2 + (g >> 2));
                            s = fma32(act_scale(d, (at + sb) * 8 + half * 4 + p), (float)c, s);
                        }
                        acc = fma32(Q3_K::scale(block), s, acc);
                    }
                }
                E0_L(sum, l) = acc;
            }
            lanes_sum<8>(sum);
            E0_EACH_LANE(l) {
                const int row = first + 2 * wave + (l >> 4);
                if ((l & 15) == 0 && row < M) out[(i64)n * M + row] = E0_L(sum, l);
            }
        }
    }
}

// ref: the exact terms, added in float64 in ascending order, one rounding.  256 outputs a block.
template <class W>
struct Ref {
    static const int values = 32;
    static E0_METHOD double row(const u8* wr, const i8* a, const u16* d, int K) {
        double sum = 0.0;
        for (int b = 0; b < K / 32; ++b) {
            const u8* block = wr + (i64)b * W::bytes;
            i32 c = 0;
            E0_UNROLL
            for (int i = 0; i < 8; ++i) c = dot4(W::word(block, i), load32(a + 32 * b + 4 * i), c);
            sum += (double)c * ((double)W::scale(block) * (double)act_scale(d, b));
        }
        return sum;
    }
};
template <>
struct Ref<Q3_K> {
    static const int values = 256;
    static E0_METHOD double row(const u8* wr, const i8* a, const u16* d, int K) {
        double sum = 0.0;
        for (int b = 0; b < K / 32; ++b) {
            const u8* block = wr + (i64)(b / 8) * Q3_K::bytes;
            const int half = (b >> 2) & 1, p = b & 3;
            i32 c = 0;
            for (int h = 0; h < 2; ++h) {
                i32 part = 0;
                E0_UNROLL
                for (int i = 4 * h; i < 4 * h + 4; ++i)
                    part = dot4(sub_bytes(Q3_K::code_word(Q3_K::qs_word(block, half, i), Q3_K::hmask_word(block, i), half, p), 4),
                                load32(a + 32 * b + 4 * i), part);
                c += part * Q3_K::sub_scale(block, half * 8 + p * 2 + h);
            }
            sum += (double)c * ((double)Q3_K::scale(block) * (double)act_scale(d, b));
        }
        return sum;
    }
};
template <class W>
E0_DEV void rows_ref(const u8* w, const i8* codes, const u16* d, const i32* ids, int div, float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    E0_FOR_THREADS(t, 256) {
        const i64 i = (i64)E0_BLOCK * 256 + t;
        if (i < (i64)M * N) {
            const int n = (int)(i / M), row = (int)(i % M);
            const u8* wr = w + ((i64)(ids ? ids[n] : 0) * M + row) * (K / Ref<W>::values) * W::bytes;
            out[i] = (float)Ref<W>::row(wr, codes + (i64)(n / div) * K, d + (i64)(n / div) * (K / 32), K);
        }
    }
}

}  // namespace e0p

#define E0_ROW_ARGS                                                                                                                \
    const e0p::u8 *w, const e0p::i8 *codes, const e0p::u16 *d, const e0p::i32 *ids, int div, float *out, int M, int N, int K, e0p::u32 *counter
#define E0_ROW_PASS w, codes, d, ids, div, out, M, N, K, counter
E0_KERNEL(128) e0_rows_mmvq_q8_0(E0_ROW_ARGS) { e0p::rows_mmvq<e0p::Q8_0>(E0_ROW_PASS); }
E0_KERNEL(128) e0_rows_mmvq_q4_0(E0_ROW_ARGS) { e0p::rows_mmvq<e0p::Q4_0>(E0_ROW_PASS); }
E0_KERNEL(128) e0_rows_mmvq_iq4_nl(E0_ROW_ARGS) { e0p::rows_mmvq<e0p::IQ4_NL>(E0_ROW_PASS); }
E0_KERNEL(128) e0_rows_mmvq_q3_k(E0_ROW_ARGS) { e0p::rows_mmvq_q3_k(E0_ROW_PASS); }
E0_KERNEL(256) e0_rows_ref_q8_0(E0_ROW_ARGS) { e0p::rows_ref<e0p::Q8_0>(E0_ROW_PASS); }
E0_KERNEL(256) e0_rows_ref_q4_0(E0_ROW_ARGS) { e0p::rows_ref<e0p::Q4_0>(E0_ROW_PASS); }
E0_KERNEL(256) e0_rows_ref_iq4_nl(E0_ROW_ARGS) { e0p::rows_ref<e0p::IQ4_NL>(E0_ROW_PASS); }
E0_KERNEL(256) e0_rows_ref_q3_k(E0_ROW_ARGS) { e0p::rows_ref<e0p::Q3_K>(E0_ROW_PASS); }
