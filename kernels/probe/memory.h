// Kernels that touch memory in a known way: what the memory probes run, and what a layer split moves its rows with.
#pragma once
#include "port/port.h"

namespace e0p {

#define E0_MOVE_THREADS 256
#define E0_MOVE_UNIT 16                                 // bytes of a thread; a block moves 4096

struct E0_ALIGN16 Unit { u32 word[4]; };

// The pattern: byte i is byte i % 4 of a hash of seed + i / 4.  The host computes the same (probe/patterns.py).
E0_DEV u32 pattern_word(u32 at) {
    u32 x = at * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ (x >> 13);
}

// One atomic addition that every device and the host see.
E0_DEV void add_for_all(u32* at, u32 value) {
#if defined(E0_CPU)
    __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
#elif defined(E0_NV)
    atomicAdd_system(at, value);
#else
    __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
#endif
}

}  // namespace e0p

// to[0..n) = from[0..n), any alignment; 16 bytes at a time where both sides allow it.  Grid: ceil(n / 4096).
E0_KERNEL(E0_MOVE_THREADS) e0_move_bytes(const e0p::u8* from, e0p::u8* to, e0p::i64 n) {
    using namespace e0p;
    const i64 first = (i64)E0_BLOCK * E0_MOVE_THREADS * E0_MOVE_UNIT;
    const bool wide = (((u64)from | (u64)to) & 15) == 0 && first + E0_MOVE_THREADS * E0_MOVE_UNIT <= n;
    E0_FOR_THREADS(t, E0_MOVE_THREADS) {
        if (wide) {
            const i64 at = first + (i64)t * E0_MOVE_UNIT;
            *(Unit*)(to + at) = *(const Unit*)(from + at);
        } else {
            for (i64 at = first + t; at < first + E0_MOVE_THREADS * E0_MOVE_UNIT && at < n; at += E0_MOVE_THREADS) to[at] = from[at];
        }
    }
}

// to[0..n) = the pattern of seed.  Grid: ceil(n / 4096).
E0_KERNEL(E0_MOVE_THREADS) e0_write_pattern(e0p::u8* to, e0p::i64 n, e0p::u32 seed) {
    using namespace e0p;
    const i64 first = (i64)E0_BLOCK * E0_MOVE_THREADS * E0_MOVE_UNIT;
    E0_FOR_THREADS(t, E0_MOVE_THREADS) {
        for (i64 at = first + t; at < first + E0_MOVE_THREADS * E0_MOVE_UNIT && at < n; at += E0_MOVE_THREADS)
            to[at] = (u8)(pattern_word(seed + (u32)(at >> 2)) >> (8 * (at & 3)));
    }
}

// Every thread adds 1 to *to.  Grid: any; the sum grows by 256 a block.
E0_KERNEL(E0_MOVE_THREADS) e0_add_ones(e0p::u32* to) {
    E0_FOR_THREADS(t, E0_MOVE_THREADS) { e0p::add_for_all(to, 1); }
}

// out[n, width] = table[ids[n], width], f32.  Grid: ceil(n * width / 256).
E0_KERNEL(E0_MOVE_THREADS) e0_gather_rows(const float* table, const e0p::i32* ids, float* out, e0p::i64 n, int width) {
    using namespace e0p;
    E0_FOR_THREADS(t, E0_MOVE_THREADS) {
        const i64 at = (i64)E0_BLOCK * E0_MOVE_THREADS + t;
        if (at < n * width) out[at] = table[(i64)ids[at / width] * width + at % width];
    }
}
