// The weight formats as the row and tile kernels see them: raw GGUF blocks, `bytes` of them for `values` weights.
//
//   word(block, i)       the i-th four codes of a 32-block as signed bytes
//   scale(block)         its scale as float32
// A row is contiguous; rows of 18, 34 and 110-byte blocks are only 2-byte aligned.
#pragma once
#include "port/port.h"

namespace e0p {

struct Q8_0 {
    static const int bytes = 34;
    static E0_METHOD float scale(const u8* b) { return half_to_float(load16(b)); }
    static E0_METHOD u32 word(const u8* b, int i) { return load32_even(b + 2 + 4 * i); }
};
struct Q4_0 {   // byte j: value j in the low nibble, value j + 16 in the high one
    static const int bytes = 18;
    static E0_METHOD float scale(const u8* b) { return half_to_float(load16(b)); }
    static E0_METHOD u32 word(const u8* b, int i) {
        return sub_bytes((load32_even(b + 2 + 4 * (i & 3)) >> (i & 4)) & 0x0f0f0f0fu, 8);
    }
};
struct IQ4_NL {
    static const int bytes = 18;
    static E0_METHOD float scale(const u8* b) { return half_to_float(load16(b)); }
    static E0_METHOD u32 word(const u8* b, int i) {
        return iq4_codes((load32_even(b + 2 + 4 * (i & 3)) >> (i & 4)) & 0x0f0f0f0fu);
    }
};

// 256 values: hmask 32 bytes, qs 64 bytes, scales 12 bytes, d.  Value 128*half + 32*plane + l has its low bits in qs[32*half + l] at
// bit 2*plane, its high bit in hmask[l] at bit 4*half + plane, and belongs to scale 8*half + 2*plane + l/16.
struct Q3_K {
    static const int bytes = 110;
    static E0_METHOD float scale(const u8* b) { return half_to_float(load16(b + 108)); }
    static E0_METHOD i32 sub_scale(const u8* b, int i) {   // sc - 32
        const u8* s = b + 96;
        const int low = (s[i & 7] >> ((i >> 3) * 4)) & 15, high = (s[8 + (i & 3)] >> (2 * (i >> 2))) & 3;
        return (low | (high << 4)) - 32;
    }
    // Codes 0..7 of four neighbours: qs and hmask hold the bytes of positions 4*g .. 4*g+3 of a half.
    static E0_METHOD u32 code_word(u32 qs, u32 hmask, int half, int plane) {
        return ((qs >> (2 * plane)) & 0x03030303u) | (((hmask >> (4 * half + plane)) & 0x01010101u) << 2);
    }
    static E0_METHOD u32 hmask_word(const u8* b, int g) { return load32_even(b + 4 * g); }
    static E0_METHOD u32 qs_word(const u8* b, int half, int g) { return load32_even(b + 32 + 32 * half + 4 * g); }
};

// Activation scales: f16 as `mmvq` stores them, f32 as `mmq` does.
E0_DEV float act_scale(const u16* d, i64 i) { return half_to_float(d[i]); }
E0_DEV float act_scale(const float* d, i64 i) { return d[i]; }

}  // namespace e0p
