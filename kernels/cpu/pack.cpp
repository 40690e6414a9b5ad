#include "cpu/pack.h"

#include <cstring>
#include <new>

#include "port/half.h"

namespace e0 {

const FormatInfo kFormatInfo[kFormats] = {{"Q8_0", 32, 34}, {"Q4_0", 32, 18}, {"Q3_K", 256, 110}, {"IQ4_NL", 32, 18}};

namespace {

const int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float half_at(const uint8_t* p) { return half_to_float((uint16_t)(p[0] | p[1] << 8)); }

// the 32 signed factors of a block
void factors(Format format, const uint8_t* p, int8_t* q) {
    for (int i = 0; i < 32; ++i) {
        if (format == Q8_0) {
            q[i] = (int8_t)p[2 + i];
            continue;
        }
        const int nibble = p[2 + i % 16] >> (i < 16 ? 0 : 4) & 15;
        q[i] = format == Q4_0 ? (int8_t)(nibble - 8) : kIq4[nibble];
    }
}

// A Q3_K super block: codes 0..7 (bit 2 from hmask) and sixteen scales 0..63
void unpack_q3k(const uint8_t* p, uint8_t* code, uint8_t* scale) {
    const uint8_t *hmask = p, *qs = p + 32, *s = p + 96;
    for (int i = 0; i < 256; ++i) {
        const int half = i / 128, plane = i / 32 % 4, at = i % 32;
        const int low = qs[32 * half + at] >> (2 * plane) & 3;
        const int high = hmask[at] >> (4 * half + plane) & 1;
        code[i] = (uint8_t)(low | high << 2);
    }
    // twelve bytes: low nibbles of scales 0..7 and 8..15, then two high bits each of scales j, j+4, j+8, j+12
    for (int j = 0; j < 16; ++j) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        const int high = s[8 + j % 4] >> (2 * (j / 4)) & 3;
        scale[j] = (uint8_t)(low | high << 4);
    }
}

}  // namespace

template <class T> T* Packed::allocate(std::unique_ptr<T, Free>& holder, int64_t n) {
    const size_t bytes = (sizeof(T) * (size_t)n + 63) / 64 * 64;
    T* p = (T*)std::aligned_alloc(64, bytes ? bytes : 64);
    if (!p) throw std::bad_alloc();
    std::memset(static_cast<void*>(p), 0, bytes);
    holder.reset(p);
    return p;
}

Packed::Packed(Format format, const uint8_t* raw, int64_t experts, int64_t rows, int64_t k) {
    const FormatInfo& info = kFormatInfo[format];
    const int64_t row_bytes = k / info.values * info.bytes, tiles = (rows + 15) / 16;
    raw_.assign(raw, raw + experts * rows * row_bytes);
    view_ = {format, experts, rows, k, tiles, nullptr, nullptr, nullptr, raw_.data(), row_bytes};
    const int64_t n = experts * tiles * (k / 32);
    if (format == Q3_K) {
        Super* s = allocate(supers_, n / 8);
        Plain32* p = allocate(plain_, n);
        for (int64_t i = 0; i < n / 8; ++i) std::memset(s[i].w, 128, sizeof s[i].w);
        for (int64_t i = 0; i < n; ++i) std::memset(p[i].w, 4, sizeof p[i].w);
        view_.supers = s;
        view_.plain = p;
    } else {
        Block32* b = allocate(blocks_, n);
        for (int64_t i = 0; i < n; ++i) std::memset(b[i].w, 128, sizeof b[i].w);
        view_.blocks = b;
    }
    for (int64_t e = 0; e < experts; ++e)
        for (int64_t r = 0; r < rows; ++r) pack_row(e, r, raw_.data() + (e * rows + r) * row_bytes);
}

void Packed::pack_row(int64_t expert, int64_t row, const uint8_t* p) {
    const Format format = (Format)view_.format;
    const int64_t nb = view_.k / 32, tile = expert * view_.tiles + row / 16, lane = row % 16;
    if (format != Q3_K) {
        for (int64_t b = 0; b < nb; ++b, p += kFormatInfo[format].bytes) {
            Block32& o = blocks_.get()[tile * nb + b];
            int8_t q[32];
            factors(format, p, q);
            o.d[lane] = half_at(p);
            for (int i = 0; i < 32; ++i) o.w[i / 4][4 * lane + i % 4] = (uint8_t)(q[i] + 128);
        }
        return;
    }
    for (int64_t sb = 0; sb < nb / 8; ++sb, p += 110) {
        Super& o = supers_.get()[tile * (nb / 8) + sb];
        uint8_t code[256], scale[16];
        unpack_q3k(p, code, scale);
        const float d = half_at(p + 108);
        o.d[lane] = d;
        for (int b = 0; b < 8; ++b) {
            Plain32& plain = plain_.get()[tile * nb + 8 * sb + b];
            for (int half = 0; half < 2; ++half) plain.s[half][lane] = d * (float)(scale[2 * b + half] - 32);
            for (int i = 0; i < 32; ++i) {
                const int at = 32 * b + i;
                o.w[b][i / 4][4 * lane + i % 4] = (uint8_t)((4 - code[at]) * (scale[at / 16] - 32) + 128);
                plain.w[i / 4][4 * lane + i % 4] = code[at];
            }
        }
    }
}

}  // namespace e0
