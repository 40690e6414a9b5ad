// float16 to and from float32, rounding to nearest even: in plain integer arithmetic, and by instruction where there is one.
#pragma once
#include <cstdint>
#include <cstring>

namespace e0 {

static inline float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 0x1f, m = h & 0x3ff, u;
    if (e == 31) {
        u = sign | 0x7f800000u | (m << 13);
    } else if (e) {
        u = sign | ((e + 112) << 23) | (m << 13);
    } else {                                            // zero or subnormal: m * 2^-24, exact
        float f = (float)m * 0x1p-24f;
        std::memcpy(&u, &f, 4);
        u |= sign;
    }
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t float_to_half(float f) {
    uint32_t u;
    std::memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);      // 65520 and above round to infinity
    if (a < 0x38800000u) {                                       // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24
        float t, x;
        std::memcpy(&x, &a, 4);
        t = x + 0.5f;
        uint32_t v;
        std::memcpy(&v, &t, 4);
        return (uint16_t)(sign | (v - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1)) >> 13));
}

}  // namespace e0
