// Row products for NVIDIA, the `mmvq` contract and its bits, from weights in row form (pack.h): every weight load is 16 bytes a lane and
// contiguous across the warp, several of them in flight before the first use; the activation row is staged once a block.
#pragma once
#include "port/port.h"
#include "portable/blocks.h"

namespace e0c {
using namespace e0p;

struct Words4 { u32 v[4]; };
E0_DEV Words4 load_once16(const void* p) {   // read once: no room taken in L1
    Words4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "l"(p));
    return r;
}
E0_DEV u32 load_once2(const void* p) {
    u16 r;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(r) : "l"(p));
    return r;
}
struct Words2 { u32 v[2]; };
E0_DEV Words2 load_once8(const void* p) {
    Words2 r;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(r.v[0]), "=r"(r.v[1]) : "l"(p));
    return r;
}
// Eight IQ4_NL codes of one word: low nibbles in out[0], high ones in out[1].
E0_DEV void iq4_pair(u32 q, u32* out) {
    const u32 index = q & 0x77777777u, pick = 0x32103210u | ((q & 0x88888888u) >> 1);
    u32 v[2];
    E0_UNROLL
    for (int h = 0; h < 2; ++h) {
        const u32 a = __byte_perm(E0_IQ4_T0, E0_IQ4_T1, index >> (16 * h)), b = __byte_perm(E0_IQ4_T2, E0_IQ4_T3, index >> (16 * h));
        v[h] = __byte_perm(a, b, pick >> (16 * h));
    }
    out[0] = __byte_perm(v[0], v[1], 0x6420);
    out[1] = __byte_perm(v[0], v[1], 0x7531);
}

// codes [rows][np/32][parts][32][16], scales f16 [rows][np].  T input rows a block, as long as they go through one matrix (ids null, or
// T = 1): each weight is read once for all of them; R weight rows a warp, so that an activation is read once for them, U blocks ahead.
// Activations lie in shared memory as [row][b/32][part][b%32][16], then da f32 [row][np].
// Grid: ceil(M / (warps*R)) * ceil(N / T) blocks, rows fastest.  Dynamic shared memory: T * np * 36 bytes.
template <int parts, int warps, int T, int R, int U>
E0_DEV void rows_cuda(const u8* w, const u16* scales, const i8* codes, const u16* d, const i32* ids, int div, float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    extern __shared__ __attribute__((aligned(16))) u8 row_memory[];
    const int nb = K / 32, np = (nb + 31) & ~31, chunks = np / 32, tiles = (M + warps * R - 1) / (warps * R);
    const int n0 = E0_BLOCK / tiles * T, row0 = ((E0_BLOCK % tiles) * warps + (E0_TID >> 5)) * R, lane = E0_TID & 31;
    float* da = (float*)(row_memory + (i64)T * np * 32);
    const u8* wr[R];
    const u16* sr[R];
    E0_UNROLL
    for (int j = 0; j < R; ++j) {
        const i64 r = (i64)(ids ? ids[n0] : 0) * M + (row0 + j < M ? row0 + j : M - 1);   // rows past the last repeat it, unstored
        wr[j] = w + r * np * (16 * parts) + lane * 16;
        sr[j] = scales + r * np + lane;
    }
    Words4 q[U][R][parts];
    u32 sc[U][R];
    auto load = [&](int u, int c) {
        E0_UNROLL
        for (int j = 0; j < R; ++j) {
            E0_UNROLL
            for (int p = 0; p < parts; ++p) q[u][j][p] = load_once16(wr[j] + (c * parts + p) * 512);
            sc[u][j] = load_once2(sr[j] + 32 * c);
        }
    };
    E0_UNROLL
    for (int u = 0; u < U; ++u)
        if (u < chunks) load(u, u);
    for (int k = 0; k < T; ++k) {   // input rows past the last repeat it, unstored
        const i64 act = (n0 + k < N ? n0 + k : N - 1) / div;
        for (int i = E0_TID; i < nb * 2; i += warps * 32) {
            const int b = i >> 1, p = i & 1;
            *(uint4*)(row_memory + k * np * 32 + (((b >> 5) * 2 + p) * 32 + (b & 31)) * 16) = *(const uint4*)(codes + act * K + i * 16);
        }
        for (int b = E0_TID; b < nb; b += warps * 32) da[k * np + b] = half_to_float(d[act * nb + b]);
    }
    __syncthreads();
    float s[R][T];
    E0_UNROLL
    for (int j = 0; j < R; ++j) {
        E0_UNROLL
        for (int k = 0; k < T; ++k) s[j][k] = 0.0f;
    }
    for (int c0 = 0; c0 < chunks; c0 += U) {
        E0_UNROLL
        for (int u = 0; u < U; ++u) {
            const int c = c0 + u;
            if (c < chunks) {
                u32 v[R][8];
                float scale[R];
                E0_UNROLL
                for (int j = 0; j < R; ++j) {
                    E0_UNROLL
                    for (int i = 0; i < 4; ++i) {
                        if (parts == 2) {
                            v[j][i] = q[u][j][0].v[i];
                            v[j][4 + i] = q[u][j][parts - 1].v[i];
                        } else {
                            u32 pair[2];
                            iq4_pair(q[u][j][0].v[i], pair);
                            v[j][i] = pair[0];
                            v[j][4 + i] = pair[1];
                        }
                    }
                    scale[j] = half_to_float((u16)sc[u][j]);
                }
                if (c + U < chunks) load(u, c + U);
                E0_UNROLL
                for (int k = 0; k < T; ++k) {
                    const uint4 a0 = *(const uint4*)(row_memory + k * np * 32 + ((c * 2 + 0) * 32 + lane) * 16);
                    const uint4 a1 = *(const uint4*)(row_memory + k * np * 32 + ((c * 2 + 1) * 32 + lane) * 16);
                    const u32 a[8] = {a0.x, a0.y, a0.z, a0.w, a1.x, a1.y, a1.z, a1.w};
                    const float d1 = da[k * np + 32 * c + lane];
                    E0_UNROLL
                    for (int j = 0; j < R; ++j) {
                        i32 dot = 0;
                        E0_UNROLL
                        for (int i = 0; i < 8; ++i) dot = dot4(v[j][i], a[i], dot);
                        if (32 * c + lane < nb) s[j][k] = __fmaf_rn(__fmul_rn(scale[j], d1), (float)dot, s[j][k]);
                    }
                }
            }
        }
    }
    E0_UNROLL
    for (int j = 0; j < R; ++j) {
        E0_UNROLL
        for (int k = 0; k < T; ++k) {
            lanes_sum<16>(&s[j][k]);
            if (lane == 0 && row0 + j < M && n0 + k < N) out[(i64)(n0 + k) * M + row0 + j] = s[j][k];
        }
    }
}

// Q3_K: two rows a warp, 16 lanes each.  Shared: activation words [row][super block][lane][plane] (256 bytes), da f32 [row][super block][8].
template <int warps, int T>
E0_DEV void rows_cuda_q3_k(const u32* qs, const u32* high, const u32* sub, const u16* d3, const i8* codes, const u16* d, const i32* ids, int div,
                           float* out, int M, int N, int K, u32* counter) {
    count_launch(counter);
    extern __shared__ __attribute__((aligned(16))) u8 row_memory[];
    const int ns = K / 256, n4 = (ns + 3) / 4, tiles = (M + 2 * warps - 1) / (2 * warps);
    const int n0 = E0_BLOCK / tiles * T, lane = E0_TID & 15, half = lane >> 3, g = lane & 7;
    const int row = (E0_BLOCK % tiles) * 2 * warps + (E0_TID >> 4);
    const bool in = row < M;
    const i64 r = (i64)(ids ? ids[n0] : 0) * M + (in ? row : 0);
    float* da = (float*)(row_memory + (i64)T * ns * 256);
    const u32* q_at = qs + (r * n4 * 16 + lane) * 4;
    const u32* h_at = high + (r * n4 * 16 + lane) * 2;
    const u32* s_at = sub + (r * n4 * 4 + 2 * half + (g >> 2)) * 4;
    const u16* d_at = d3 + r * n4 * 4;
    const int ahead = 2;
    Words4 q[ahead], sc[ahead];
    Words2 hi[ahead], dd[ahead];
    E0_UNROLL
    for (int u = 0; u < ahead; ++u)
        if (u < n4) {
            q[u] = load_once16(q_at + u * 64);
            hi[u] = load_once8(h_at + u * 32);
            sc[u] = load_once16(s_at + u * 16);
            dd[u] = load_once8(d_at + u * 4);
        }
    for (int k = 0; k < T; ++k) {
        const i64 act = (n0 + k < N ? n0 + k : N - 1) / div;
        for (int i = E0_TID; i < ns * 64; i += warps * 32) {
            const int sb = i >> 6, word = i & 63, hf = word >> 5, p = (word >> 3) & 3, gg = word & 7;
            *(u32*)(row_memory + (k * ns + sb) * 256 + ((hf * 8 + gg) * 4 + p) * 4) = *(const u32*)(codes + act * K + i * 4);
        }
        for (int b = E0_TID; b < ns * 8; b += warps * 32) da[k * ns * 8 + b] = half_to_float(d[act * ns * 8 + b]);
    }
    __syncthreads();
    float acc[T];
    E0_UNROLL
    for (int k = 0; k < T; ++k) acc[k] = 0.0f;
    for (int f0 = 0; f0 < n4; f0 += ahead) {
        E0_UNROLL
        for (int u = 0; u < ahead; ++u) {
            const int f = f0 + u;
            if (f < n4) {
                E0_UNROLL
                for (int j = 0; j < 4; ++j) {
                    const int sb = 4 * f + j;
                    if (sb < ns) {
                        u32 code[4];
                        i32 scale[4];
                        E0_UNROLL
                        for (int p = 0; p < 4; ++p) {
                            const u32 missing = (hi[u].v[j >> 1] >> (4 * (j & 1) + p)) & 0x01010101u;
                            code[p] = ((q[u].v[j] >> (2 * p)) & 0x03030303u) | (missing * 0xfcu);   // low bits - 4 where missing
                            scale[p] = (i32)(i8)(sc[u].v[j] >> (8 * p));
                        }
                        const float block = half_to_float((u16)(dd[u].v[j >> 1] >> (16 * (j & 1))));
                        E0_UNROLL
                        for (int k = 0; k < T; ++k) {
                            const uint4 a4 = *(const uint4*)(row_memory + (k * ns + sb) * 256 + lane * 16);
                            const float4 da4 = *(const float4*)(da + (k * ns + sb) * 8 + half * 4);
                            const u32 a[4] = {a4.x, a4.y, a4.z, a4.w};
                            const float db[4] = {da4.x, da4.y, da4.z, da4.w};
                            float s = 0.0f;
                            E0_UNROLL
                            for (int p = 0; p < 4; ++p) s = __fmaf_rn(db[p], (float)(dot4(code[p], a[p], 0) * scale[p]), s);
                            acc[k] = __fmaf_rn(block, s, acc[k]);
                        }
                    }
                }
                if (f + ahead < n4) {
                    q[u] = load_once16(q_at + (f + ahead) * 64);
                    hi[u] = load_once8(h_at + (f + ahead) * 32);
                    sc[u] = load_once16(s_at + (f + ahead) * 16);
                    dd[u] = load_once8(d_at + (f + ahead) * 4);
                }
            }
        }
    }
    E0_UNROLL
    for (int k = 0; k < T; ++k) {
        lanes_sum<8>(acc + k);
        if (lane == 0 && in && n0 + k < N) out[(i64)(n0 + k) * M + row] = acc[k];
    }
}

}  // namespace e0c

#define E0_CUDA_ROW_ARGS                                                                                                              \
    const e0p::i8 *codes, const e0p::u16 *d, const e0p::i32 *ids, int div, float *out, int M, int N, int K, e0p::u32 *counter
#define E0_CUDA_ROW_PASS codes, d, ids, div, out, M, N, K, counter
// name_T: T input rows a block.  Warps, weight rows a warp and depth as measured fastest on an H200; runtime/tuned.py knows the warps.
#define E0_ROW_KERNEL(T, format, parts, warps, R, U)                                                                                \
    E0_KERNEL(warps * 32) e0_row_mmvq_##format##_##T(const e0p::u8* w, const e0p::u16* scales, E0_CUDA_ROW_ARGS) {                    \
        e0c::rows_cuda<parts, warps, T, R, U>(w, scales, E0_CUDA_ROW_PASS);                                                          \
    }
#define E0_ROW_KERNEL_Q3_K(T, warps)                                                                                                \
    E0_KERNEL(warps * 32) e0_row_mmvq_q3_k_##T(const e0p::u32* qs, const e0p::u32* high, const e0p::u32* sub, const e0p::u16* d3,     \
                                              E0_CUDA_ROW_ARGS) {                                                                   \
        e0c::rows_cuda_q3_k<warps, T>(qs, high, sub, d3, E0_CUDA_ROW_PASS);                                                          \
    }
E0_ROW_KERNEL(1, q8_0, 2, 8, 1, 4)
E0_ROW_KERNEL(4, q8_0, 2, 16, 2, 2)
E0_ROW_KERNEL(8, q8_0, 2, 16, 2, 2)
E0_ROW_KERNEL(1, iq4_nl, 1, 16, 1, 4)
E0_ROW_KERNEL(4, iq4_nl, 1, 16, 2, 2)
E0_ROW_KERNEL(8, iq4_nl, 1, 16, 2, 2)
E0_ROW_KERNEL_Q3_K(1, 8)
E0_ROW_KERNEL_Q3_K(4, 8)
E0_ROW_KERNEL_Q3_K(8, 8)
// Reads nbytes (a multiple of 16) and writes one word a block that never comes to be: the bandwidth a kernel can have.
extern "C" __global__ void __launch_bounds__(512) e0_read_only(const uint4* p, e0p::i64 words, e0p::u32* out) {
    e0p::u32 x = 0;
    const e0p::i64 step = (e0p::i64)gridDim.x * 512;
    e0p::i64 i = (e0p::i64)blockIdx.x * 512 + threadIdx.x;
    for (; i + 3 * step < words; i += 4 * step) {
        e0c::Words4 v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) v[u] = e0c::load_once16(p + i + u * step);
#pragma unroll
        for (int u = 0; u < 4; ++u) x ^= v[u].v[0] ^ v[u].v[1] ^ v[u].v[2] ^ v[u].v[3];
    }
    for (; i < words; i += step) {
        const e0c::Words4 v = e0c::load_once16(p + i);
        x ^= v.v[0] ^ v.v[1] ^ v.v[2] ^ v.v[3];
    }
    if (x == 0x12345678u) out[blockIdx.x] = x;
}
