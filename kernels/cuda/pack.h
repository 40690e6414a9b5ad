// Weights repacked once per load for the tuned CUDA kernels, from raw GGUF rows on the device.
//
// Tile form: int8 codes, one byte a weight (IQ4_NL through its table, Q3_K as (4-code)*(sc-32)), in pieces that a stage copies whole:
// [experts][tile of 128 rows][128 of K][128 rows][128 bytes], 16-byte chunks of a row xored by row & 7.  Scales f32 (Q3_K negated)
// [experts][tile][K/32, Q3_K K/256][128]; inside 64 rows, row 16*m + 8*h + g sits at 8*g + 2*m + h, so that a thread of the matrix
// step finds its rows side by side.  Rows past the matrix are zero.
// Row form: the bytes of the format, codes apart from scales, so that a wave's loads are 16 bytes a lane and contiguous.
#pragma once
#include "portable/blocks.h"

namespace e0c {
using namespace e0p;

E0_DEV int scale_place(int row) { return (row & 64) + 8 * (row & 7) + 2 * ((row >> 4) & 3) + ((row >> 3) & 1); }
E0_DEV u32* word_place(i8* codes, int K, i64 tile, int row, int k) {   // the word of positions k .. k+3 of a row of a tile
    const int in = k & 127;
    return (u32*)(codes + ((tile * (K / 128) + k / 128) * 128 + row) * 128 + ((((in >> 4) ^ (row & 7)) << 4) | (in & 15)));
}
// The tile kernels form f(C*dw) as fma(M + C, dw, -M*dw), which needs finite scales; `flag` says that one is not.
E0_DEV void note_scale(float d, u32* flag) { if ((bits(d) & 0x7f800000u) == 0x7f800000u) *flag = 1; }

template <class W>
E0_DEV void pack_tile(const u8* raw, int experts, int M, int Mp, int K, i8* codes, float* scales, u32* flag) {
    const int nb = K / 32;
    const i64 i = (i64)E0_BLOCK * 256 + E0_TID;
    if (i >= (i64)experts * Mp * nb) return;
    const int b = (int)(i % nb), row = (int)(i / nb % Mp), e = (int)(i / nb / Mp);
    const u8* block = raw + (((i64)e * M + row) * nb + b) * W::bytes;
    const i64 tile = (i64)e * (Mp / 128) + row / 128;
    E0_UNROLL
    for (int q = 0; q < 8; ++q) *word_place(codes, K, tile, row & 127, 32 * b + 4 * q) = row < M ? W::word(block, q) : 0u;
    const float d = row < M ? W::scale(block) : 0.0f;
    note_scale(d, flag);
    scales[(tile * nb + b) * 128 + scale_place(row & 127)] = d;
}
E0_DEV void pack_tile_q3_k(const u8* raw, int experts, int M, int Mp, int K, i8* codes, float* scales, u32* flag) {
    const int ns = K / 256;
    const i64 i = (i64)E0_BLOCK * 256 + E0_TID;
    if (i >= (i64)experts * Mp * ns * 8) return;
    const int g = (int)(i & 7), sb = (int)(i / 8 % ns), row = (int)(i / 8 / ns % Mp), e = (int)(i / 8 / ns / Mp);
    const u8* block = raw + (((i64)e * M + row) * ns + sb) * Q3_K::bytes;
    const i64 tile = (i64)e * (Mp / 128) + row / 128;
    const bool in = row < M;
    const u32 hmask = in ? Q3_K::hmask_word(block, g) : 0u;
    for (int half = 0; half < 2; ++half) {
        const u32 qs = in ? Q3_K::qs_word(block, half, g) : 0u;
        for (int p = 0; p < 4; ++p) {
            const i32 sc = in ? Q3_K::sub_scale(block, half * 8 + p * 2 + (g >> 2)) : 0;
            const u32 v = Q3_K::code_word(qs, hmask, half, p);
            u32 folded = 0;
            for (int j = 0; j < 32; j += 8) folded |= (u32)(u8)((4 - (i32)((v >> j) & 7)) * sc) << j;
            *word_place(codes, K, tile, row & 127, 256 * sb + 128 * half + 32 * p + 4 * g) = folded;
        }
    }
    if (g == 0) {
        const float d = in ? Q3_K::scale(block) : 0.0f;
        note_scale(d, flag);
        scales[(tile * ns + sb) * 128 + scale_place(row & 127)] = -d;
    }
}

// Row form of 32-blocks: per row and 32 blocks (nb padded to 32), `parts` runs of 32 x 16 bytes, then scales f16 [rows][padded nb].
template <class W, int parts>
E0_DEV void pack_rows(const u8* raw, i64 rows, int K, u8* codes, u16* scales) {
    const int nb = K / 32, np = (nb + 31) & ~31;
    const i64 i = (i64)E0_BLOCK * 256 + E0_TID;
    if (i >= rows * np) return;
    const int b = (int)(i % np);
    const i64 row = i / np;
    const u8* block = raw + (row * nb + b) * W::bytes;
    for (int p = 0; p < parts; ++p) {
        u32* to = (u32*)(codes + ((row * np + (b & ~31)) * parts + 32 * p + (b & 31)) * 16);
        for (int q = 0; q < 4; ++q) to[q] = b < nb ? load32_even(block + 2 + 16 * p + 4 * q) : 0u;
    }
    scales[i] = b < nb ? load16(block) : (u16)0;
}

// Row form of Q3_K, super blocks in fours (padded): lane 8*half + g of 16 reads, per four super blocks, its four words of qs (16 bytes),
// its planes' inverted hmask bits (nibble a byte, two super blocks a word: 8 bytes), and its four scale bytes sc-32 of each (16 bytes);
// d f16 [rows][padded super blocks].  114 bytes a super block against the format's 110.
E0_DEV void pack_rows_q3_k(const u8* raw, i64 rows, int K, u32* qs, u32* high, u32* sub, u16* d) {
    const int ns = K / 256, n4 = (ns + 3) / 4;
    const i64 i = (i64)E0_BLOCK * 256 + E0_TID;
    if (i >= rows * n4 * 16) return;
    const int lane = (int)(i & 15), quad = (int)(i / 16 % n4), half = lane >> 3, g = lane & 7;
    const i64 row = i / 16 / n4;
    u32 bits2[2] = {0, 0};
    for (int j = 0; j < 4; ++j) {
        const int sb = 4 * quad + j;
        const u8* block = raw + (row * ns + sb) * Q3_K::bytes;
        const bool in = sb < ns;
        qs[i * 4 + j] = in ? Q3_K::qs_word(block, half, g) : 0u;
        const u32 missing = in ? (~Q3_K::hmask_word(block, g) >> (4 * half)) & 0x0f0f0f0fu : 0u;
        bits2[j >> 1] |= missing << (4 * (j & 1));
        if ((g & 3) == 0) {   // one lane for each (half, g >= 4)
            u32 four = 0;
            for (int p = 0; p < 4; ++p) four |= (u32)(u8)(in ? Q3_K::sub_scale(block, half * 8 + p * 2 + (g >> 2)) : 0) << (8 * p);
            sub[((row * n4 + quad) * 4 + 2 * half + (g >> 2)) * 4 + j] = four;
        }
        if (lane == 0) d[(row * n4 + quad) * 4 + j] = in ? load16(block + 108) : (u16)0;
    }
    high[i * 2] = bits2[0];
    high[i * 2 + 1] = bits2[1];
}

}  // namespace e0c

#define E0_PACK_TILE_ARGS const e0p::u8 *raw, int experts, int M, int Mp, int K, e0p::i8 *codes, float *scales, e0p::u32 *flag
E0_KERNEL(256) e0_pack_tile_q8_0(E0_PACK_TILE_ARGS) { e0c::pack_tile<e0p::Q8_0>(raw, experts, M, Mp, K, codes, scales, flag); }
E0_KERNEL(256) e0_pack_tile_iq4_nl(E0_PACK_TILE_ARGS) { e0c::pack_tile<e0p::IQ4_NL>(raw, experts, M, Mp, K, codes, scales, flag); }
E0_KERNEL(256) e0_pack_tile_q3_k(E0_PACK_TILE_ARGS) { e0c::pack_tile_q3_k(raw, experts, M, Mp, K, codes, scales, flag); }
E0_KERNEL(256) e0_pack_rows_q8_0(const e0p::u8* raw, e0p::i64 rows, int K, e0p::u8* codes, e0p::u16* scales) {
    e0c::pack_rows<e0p::Q8_0, 2>(raw, rows, K, codes, scales);
}
E0_KERNEL(256) e0_pack_rows_iq4_nl(const e0p::u8* raw, e0p::i64 rows, int K, e0p::u8* codes, e0p::u16* scales) {
    e0c::pack_rows<e0p::IQ4_NL, 1>(raw, rows, K, codes, scales);
}
E0_KERNEL(256) e0_pack_rows_q3_k(const e0p::u8* raw, e0p::i64 rows, int K, e0p::u32* qs, e0p::u32* high, e0p::u32* sub, e0p::u16* d) {
    e0c::pack_rows_q3_k(raw, rows, K, qs, high, sub, d);
}
