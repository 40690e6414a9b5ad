// One kernel source, three builds: scalar C++ for the CPU, HIP device code without vendor headers, CUDA through NVRTC.
//
// A kernel body is a sequence of phases split by barrier().  On a GPU a phase is what this thread or this wave does; on the CPU it
// is a loop over the block's threads or waves, and state that outlives a barrier is an array there.  Waves have 32 lanes everywhere.
// Every float operation is one IEEE rounding: builds switch contraction and flushing off, fma is written where it is meant.
#pragma once
#if defined(__HIP__) && defined(__AMDGCN__)
#define E0_AMD 1
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define E0_NV 1
#else
#define E0_CPU 1
#include "port/simd.h"
#endif

// ---- qualifiers, ids -------------------------------------------------------------------------------------------------------
// E0_KERNEL(threads) declares an entry for blocks of that many threads; grids are one-dimensional.
#if defined(E0_AMD)
#define E0_DEV static __attribute__((device)) inline __attribute__((always_inline))
#define E0_METHOD __attribute__((device)) inline __attribute__((always_inline))
#define E0_KERNEL(threads) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#define E0_SHARED __attribute__((shared))
#define E0_TID ((int)__builtin_amdgcn_workitem_id_x())
#define E0_BLOCK ((int)__builtin_amdgcn_workgroup_id_x())
#elif defined(E0_NV)
#define E0_DEV static __device__ __forceinline__
#define E0_METHOD __device__ __forceinline__
#define E0_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define E0_SHARED __shared__
#define E0_TID ((int)threadIdx.x)
#define E0_BLOCK ((int)blockIdx.x)
#else
#define E0_DEV static inline
#define E0_METHOD inline
#define E0_KERNEL(threads) static void
#define E0_SHARED static thread_local
#define E0_BLOCK (::e0p::cpu_block)
#endif
#define E0_ALIGN16 __attribute__((aligned(16)))

// ---- phases ----------------------------------------------------------------------------------------------------------------
// E0_STATE(T, x, n) lives across barriers, once per thread or wave (n of them), read as E0_AT(x, i).
// E0_LANES(T, v) is one value per lane of the current wave, read as E0_L(v, lane) inside E0_EACH_LANE(lane).
#define E0_UNUSED __attribute__((unused))
#if defined(E0_CPU)
#define E0_FOR_THREADS(t, n) for (E0_UNUSED int t = 0; t < (n); ++t)
#define E0_FOR_WAVES(w, n) for (E0_UNUSED int w = 0; w < (n); ++w)
#define E0_EACH_LANE(l) for (int l = 0; l < 32; ++l)
#define E0_STATE(T, x, n) T x[n]
#define E0_AT(x, i) x[i]
#define E0_LANES(T, v) T v[32]
#define E0_L(v, l) v[l]
#define E0_UNROLL
#else
#define E0_FOR_THREADS(t, n) for (E0_UNUSED int t = E0_TID, once_##t = 1; once_##t; once_##t = 0)
#define E0_FOR_WAVES(w, n) for (E0_UNUSED int w = E0_TID >> 5, once_##w = 1; once_##w; once_##w = 0)
#define E0_EACH_LANE(l) for (E0_UNUSED int l = E0_TID & 31, once_##l = 1; once_##l; once_##l = 0)
#define E0_STATE(T, x, n) T x
#define E0_AT(x, i) x
#define E0_LANES(T, v) T v[1]
#define E0_L(v, l) v[0]
#define E0_UNROLL _Pragma("unroll")
#endif

namespace e0p {

typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#if defined(E0_CPU)
static thread_local int cpu_block = 0;
E0_DEV void barrier() {}
E0_DEV void barrier_global() {}
#elif defined(E0_NV)
E0_DEV void barrier() { __syncthreads(); }
E0_DEV void barrier_global() { __syncthreads(); }
#else
// Orders shared memory alone, which keeps vmcnt waits away; barrier_global() also orders the block's global stores (only needed
// across waves of a work group in one compute unit's mode, -mcumode, so no cache is to be invalidated).
E0_DEV void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
E0_DEV void barrier_global() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

// ---- bits ------------------------------------------------------------------------------------------------------------------
#if defined(E0_NV)
E0_DEV u32 bits(float x) { return __float_as_uint(x); }
E0_DEV float from_bits(u32 u) { return __uint_as_float(u); }
#else
E0_DEV u32 bits(float x) { u32 u; __builtin_memcpy(&u, &x, 4); return u; }
E0_DEV float from_bits(u32 u) { float x; __builtin_memcpy(&x, &u, 4); return x; }
#endif

E0_DEV float fma32(float a, float b, float c) {
#if defined(E0_CPU)
    return e0::E0_ISA::fma1(a, b, c);
#elif defined(E0_NV)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

// a / b, one rounding, subnormals included.  On AMD through float64: the quotient of two floats never lies so near a rounding boundary
// that rounding it twice could differ (53 >= 2*24 + 2 bits), and the float32 sequence's scaling of tiny numerators, which emulators of
// the instruction get wrong, is not needed then.  The empty asm keeps the compiler from narrowing it back.
E0_DEV float divide(float a, float b) {
#if defined(E0_AMD)
    double x = (double)a;
    __asm__("" : "+v"(x));
    return (float)(x / (double)b);
#else
    return a / b;
#endif
}

// f16 -> f32, exact; f32 -> f16, nearest even.  The CPU has no f16 type it can rely on, so it works on the bits.
E0_DEV float half_to_float(u16 h) {
#if defined(E0_NV)
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
#elif defined(E0_AMD)
    _Float16 x;
    __builtin_memcpy(&x, &h, 2);
    return (float)x;
#else
    const u32 sign = (u32)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000u | ((rest & 0x3ff) << 13));
    if (rest < 0x400) {
        const float v = (float)rest * 0x1p-24f;
        return from_bits(bits(v) | sign);
    }
    return from_bits(sign | ((rest + 0x1c000) << 13));
#endif
}
E0_DEV u16 float_to_half(float x) {
#if defined(E0_NV)
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#elif defined(E0_AMD)
    const _Float16 y = (_Float16)x;
    u16 h;
    __builtin_memcpy(&h, &y, 2);
    return h;
#else
    const u32 u = bits(x), sign = (u >> 16) & 0x8000;
    u32 a = u & 0x7fffffff;
    if (a > 0x7f800000u) return (u16)(sign | 0x7e00);
    if (a >= 0x477ff000u) return (u16)(sign | 0x7c00);     // 65520 and above round to infinity
    if (a < 0x38800000u) {                                 // subnormal: adding 0.5 puts units of 2^-24 in the low bits, rounded
        const float t = from_bits(a) + 0.5f;
        return (u16)(sign | (bits(t) - 0x3f000000u));
    }
    a += 0xfffu + ((a >> 13) & 1);
    return (u16)(sign | ((a >> 13) - 0x1c000u));
#endif
}

// ---- loads -----------------------------------------------------------------------------------------------------------------
E0_DEV u16 load16(const void* p) {
#if defined(E0_NV)
    return *(const u16*)p;
#else
    u16 v;
    __builtin_memcpy(&v, __builtin_assume_aligned(p, 2), 2);
    return v;
#endif
}
E0_DEV u32 load32(const void* p) {
#if defined(E0_NV)
    return *(const u32*)p;
#else
    u32 v;
    __builtin_memcpy(&v, __builtin_assume_aligned(p, 4), 4);
    return v;
#endif
}
E0_DEV void store32(void* p, u32 v) {
#if defined(E0_NV)
    *(u32*)p = v;
#else
    __builtin_memcpy(__builtin_assume_aligned(p, 4), &v, 4);
#endif
}
// GGUF blocks of 18, 34 and 110 bytes leave their words on even addresses only.
E0_DEV u32 load32_even(const void* p) {
#if defined(E0_CPU)
    u32 v;
    __builtin_memcpy(&v, p, 4);
    return v;
#else
    const u8* q = (const u8*)p;
    return (u32)load16(q) | ((u32)load16(q + 2) << 16);
#endif
}

// ---- four int8 at a time ---------------------------------------------------------------------------------------------------
E0_DEV i32 dot4(u32 a, u32 b, i32 c) {   // c + sum of signed products, exact
#if defined(E0_AMD)
    return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#elif defined(E0_NV)
    return __dp4a((i32)a, (i32)b, c);
#else
    for (int i = 0; i < 32; i += 8) c += (i32)(i8)(a >> i) * (i32)(i8)(b >> i);
    return c;
#endif
}
// Each byte minus n, for bytes of 0..127 and n of 0..127: the set top bit keeps borrows inside the byte.
E0_DEV u32 sub_bytes(u32 v, u32 n) { return ((v | 0x80808080u) - n * 0x01010101u) ^ 0x80808080u; }

// IQ4_NL's table on four indices of 0..15, one a byte.
#define E0_IQ4_T0 0xbfad9881u   // -127 -104  -83  -65
#define E0_IQ4_T1 0xf6eaddcfu   //  -49  -35  -22  -10
#define E0_IQ4_T2 0x26190d01u   //    1   13   25   38
#define E0_IQ4_T3 0x71594535u   //   53   69   89  113
E0_DEV u32 iq4_codes(u32 index) {
#if defined(E0_NV) || defined(E0_AMD)
    const u32 low3 = index & 0x07070707u;
    const u32 upper = ((index >> 3) & 0x01010101u) * 0xffu;
#if defined(E0_AMD)
    const u32 a = __builtin_amdgcn_perm(E0_IQ4_T1, E0_IQ4_T0, low3), b = __builtin_amdgcn_perm(E0_IQ4_T3, E0_IQ4_T2, low3);
#else
    const u32 pick = (low3 | (low3 >> 4)) & 0x00ff00ffu, sel = (pick | (pick >> 8)) & 0xffffu;   // one index a nibble
    const u32 a = __byte_perm(E0_IQ4_T0, E0_IQ4_T1, sel), b = __byte_perm(E0_IQ4_T2, E0_IQ4_T3, sel);
#endif
    return (a & ~upper) | (b & upper);
#else
    const u32 table[4] = {E0_IQ4_T0, E0_IQ4_T1, E0_IQ4_T2, E0_IQ4_T3};
    u32 out = 0;
    for (int i = 0; i < 32; i += 8) {
        const u32 k = (index >> i) & 15;
        out |= ((table[k >> 2] >> (8 * (k & 3))) & 0xff) << i;
    }
    return out;
#endif
}

// ---- across a wave ---------------------------------------------------------------------------------------------------------
#if defined(E0_CPU)
#define E0_SHUFFLE_STEP(T, expr)                                   \
    T other[32], mine;                                             \
    __builtin_memcpy(other, v, sizeof other);                      \
    for (int l = 0; l < 32; ++l) { mine = other[l]; const T theirs = other[l ^ m]; v[l] = (expr); }
#else
#if defined(E0_NV)
E0_DEV u32 from_lane_xor(u32 x, int m) { return __shfl_xor_sync(0xffffffffu, x, m, 32); }
#else
E0_DEV u32 from_lane_xor(u32 x, int m) {
    const int lane = (int)__builtin_amdgcn_mbcnt_lo(~0u, 0u);
    return (u32)__builtin_amdgcn_ds_bpermute((lane ^ m) * 4, (int)x);
}
#endif
E0_DEV float from_lane_xor(float x, int m) { return from_bits(from_lane_xor(bits(x), m)); }
#define E0_SHUFFLE_STEP(T, expr) \
    const T mine = v[0], theirs = from_lane_xor(v[0], m); v[0] = (expr);
#endif
// Sum over groups of 2*first lanes: butterfly over xor first, first/2, ... 1.
template <int first>
E0_DEV void lanes_sum(float* v) {
    E0_UNROLL
    for (int m = first; m; m >>= 1) { E0_SHUFFLE_STEP(float, mine + theirs) }
}
E0_DEV void lanes_max(u32* v) {
    E0_UNROLL
    for (int m = 16; m; m >>= 1) { E0_SHUFFLE_STEP(u32, mine > theirs ? mine : theirs) }
}

// ---- one launch, counted where it happens ------------------------------------------------------------------------------------
// The first thread of the first block adds one, so a launch counts once, also when a captured graph replays it.
E0_DEV void count_launch(u32* counter) {
#if defined(E0_CPU)
    if (counter && cpu_block == 0) __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED);
#elif defined(E0_NV)
    if (counter && blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(counter, 1u);
#else
    if (counter && E0_BLOCK == 0 && E0_TID == 0) __hip_atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

}  // namespace e0p
