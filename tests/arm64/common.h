// Seeded inputs and hashes for the program that is run on two architectures.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

// Inputs come from integers alone, so both machines hold the same bits before anything under test has run.
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 0x9e3779b97f4a7c15u + 1) {}
    uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint32_t x = (uint32_t)(((state >> 18) ^ state) >> 27), r = (uint32_t)(state >> 59);
        return (x >> r) | (x << ((32 - r) & 31));
    }
    int below(int n) { return (int)(next() % (uint32_t)n); }
    // magnitudes 2^-spread .. 2^spread, both signs, full mantissas
    float value(int spread) {
        const uint32_t bits = (next() & 0x807fffffu) | ((uint32_t)(127 - spread + below(2 * spread + 1)) << 23);
        float f;
        std::memcpy(&f, &bits, 4);
        return f;
    }
    uint16_t half(int spread) { return (uint16_t)((next() & 0x83ffu) | ((uint32_t)(15 - spread + below(2 * spread + 1)) << 10)); }
    std::vector<float> values(size_t n, int spread) {
        std::vector<float> out(n);
        for (float& v : out) v = value(spread);
        return out;
    }
};

// The NaN an operation makes has another sign and payload on each architecture; all of them count as one.
inline uint64_t plain(float v) {
    uint32_t u;
    std::memcpy(&u, &v, 4);
    return v != v ? 0x7fc00000u : u;
}
inline uint64_t plain(double v) {
    uint64_t u;
    std::memcpy(&u, &v, 8);
    return v != v ? 0x7ff8000000000000u : u;
}
inline uint64_t plain(uint16_t v) { return (v & 0x7fff) > 0x7c00 ? 0x7e00 : v; }   // float16 bits
inline uint64_t plain(int8_t v) { return (uint8_t)v; }
inline uint64_t plain(int32_t v) { return (uint32_t)v; }
inline uint64_t plain(int64_t v) { return (uint64_t)v; }

template <class T>
void report(const std::string& name, const T* data, size_t n) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < n; ++i) hash = (hash ^ plain(data[i])) * 1099511628211u;
    std::printf("%s %zu %016llx\n", name.c_str(), n, (unsigned long long)hash);
}
template <class T>
void report(const std::string& name, const std::vector<T>& v) { report(name, v.data(), v.size()); }

void run_engine();
void run_oracle();
void run_onepass();
void run_portable();
void run_variants();
