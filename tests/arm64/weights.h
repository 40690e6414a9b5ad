// Rows of random weight blocks: every code, scales of both signs.
#pragma once
#include "common.h"

struct Format {
    const char* name;
    int values, bytes, scale_at;
};
static const Format formats[] = {{"q8_0", 32, 34, 0}, {"q4_0", 32, 18, 0}, {"q3_k", 256, 110, 108}, {"iq4_nl", 32, 18, 0}};

inline std::vector<uint8_t> random_weights(Random& r, const Format& f, int rows, int k) {
    std::vector<uint8_t> raw((size_t)rows * (k / f.values) * f.bytes);
    for (auto& b : raw) b = (uint8_t)r.next();
    for (size_t at = 0; at < raw.size(); at += f.bytes) {
        const uint16_t d = r.half(6);
        std::memcpy(&raw[at + f.scale_at], &d, 2);
    }
    return raw;
}
