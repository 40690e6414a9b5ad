// How a tile product's operands come to shared memory on sm_90: whole pieces by the copy engine, announced by barriers in memory.
//
// Weights lie in such pieces (pack.h).  Activations are brought into the same form by e0_stage_* before the product, which also gathers
// the input rows of an expert's tile: [tile][128 of K][bn rows][128 bytes] with 16-byte chunks xored by row & 7, and f32 scales
// [tile][128 of K][4][bn], column 8*j + 2*q + c of every `group` columns at q*group/4 + 2*j + c, so that a thread of the matrix step
// finds its columns side by side.
#pragma once
#include "portable/blocks.h"

namespace e0c {
using namespace e0p;

E0_DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
E0_DEV void barrier_init(u32 at, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory"); }
E0_DEV void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
E0_DEV void barrier_arrive(u32 at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
E0_DEV void barrier_expect(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
E0_DEV void barrier_wait(u32 at, u32 parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}\n" ::"r"(at),
                 "r"(parity)
                 : "memory");
}
E0_DEV void copy_piece(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier)
                 : "memory");
}
E0_DEV void load_floats4(float* r, u32 address) {
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(address));
}
E0_DEV void load_floats2(float* r, u32 address) {
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(r[0]), "=f"(r[1]) : "r"(address));
}

// The stages of one block: bm = 128 weight rows, bn input rows; `stages` buffers, each with a barrier for full and one for empty.
template <int bn, int stages, int warps, bool super>
struct Pipeline {
    static const int at_b = 128 * 128, at_da = at_b + bn * 128, at_dw = at_da + bn * 16, bytes = at_dw + 128 * (super ? 4 : 16);
    static const int pitch = (bytes + 1023) & ~1023;
    const i8 *w, *a;
    const float *dw, *da;
    u32 base, full, empty;
    int steps;

    E0_METHOD void begin(u8* memory, u64* barriers, const i8* w_, const float* dw_, const i8* a_, const float* da_, int steps_) {
        w = w_;
        dw = dw_;
        a = a_;
        da = da_;
        steps = steps_;
        base = (shared_address(memory) + 1023) & ~1023u;
        full = shared_address(barriers);
        empty = full + 8 * stages;
        if (E0_TID == 0) {
            for (int s = 0; s < stages; ++s) {
                barrier_init(full + 8 * s, 1);
                barrier_init(empty + 8 * s, warps);
            }
            barriers_ready();
        }
        __syncthreads();
        if (E0_TID == 0)
            for (int s = 0; s < stages && s < steps; ++s) fetch(s, s);
    }
    E0_METHOD void fetch(int step, int slot) {
        const u32 to = base + slot * pitch, bar = full + 8 * slot;
        barrier_expect(bar, bytes);
        copy_piece(to, w + (i64)step * (128 * 128), 128 * 128, bar);
        copy_piece(to + at_b, a + (i64)step * (bn * 128), bn * 128, bar);
        copy_piece(to + at_da, da + (i64)step * (4 * bn), bn * 16, bar);
        copy_piece(to + at_dw, dw + (i64)(super ? step / 2 : step * 4) * 128, 128 * (super ? 4 : 16), bar);
    }
};

// One block a (tile, 128 of K).
template <class D>
E0_DEV void stage_rows(const i8* codes, const D* d, const i32* plan, int div, int N, int K, int bn, int group, i8* staged, float* scales) {
    const int steps = K / 128, nb = K / 32, step = E0_BLOCK % steps, tile = E0_BLOCK / steps;
    const i32* mine = plan ? plan + (i64)tile * (1 + bn) : (const i32*)0;
    if (plan && mine[0] < 0) return;
    for (int i = E0_TID; i < bn * 8; i += 256) {
        const int r = i >> 3, c = i & 7, n = plan ? mine[1 + r] : (tile * bn + r < N ? tile * bn + r : -1);
        uint4 v = {0u, 0u, 0u, 0u};
        if (n >= 0) v = *(const uint4*)(codes + (i64)(n / div) * K + step * 128 + c * 16);
        *(uint4*)(staged + (((i64)tile * steps + step) * bn + r) * 128 + ((c ^ (r & 7)) << 4)) = v;
    }
    for (int i = E0_TID; i < bn * 4; i += 256) {
        const int b = i & 3, r = i >> 2, n = plan ? mine[1 + r] : (tile * bn + r < N ? tile * bn + r : -1);
        const int in = r % group, place = r - in + ((in >> 1) & 3) * (group / 4) + (in >> 3) * 2 + (in & 1);
        scales[(((i64)tile * steps + step) * 4 + b) * bn + place] = n >= 0 ? act_scale(d, (i64)(n / div) * nb + step * 4 + b) : 0.0f;
    }
}

}  // namespace e0c

#define E0_STAGE_ARGS(D)                                                                                                             \
    const e0p::i8 *codes, const D *d, const e0p::i32 *plan, int div, int N, int K, int bn, int group, e0p::i8 *staged, float *scales
E0_KERNEL(256) e0_stage_f16(E0_STAGE_ARGS(e0p::u16)) { e0c::stage_rows(codes, d, plan, div, N, K, bn, group, staged, scales); }
E0_KERNEL(256) e0_stage_f32(E0_STAGE_ARGS(float)) { e0c::stage_rows(codes, d, plan, div, N, K, bn, group, staged, scales); }
