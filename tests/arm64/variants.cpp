// Every compiled entry of the CPU kernels' table, and their quantisers.
#include "common.h"
#include "cpu/pack.h"
#include "cpu/types.h"
#include "weights.h"

namespace e0 {
namespace baseline { const KernelTable& table(); }
}
using namespace e0;

namespace {

constexpr int64_t kTokens = 19, kChosen = 3, kExperts = 4;

const char* const names[] = {
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) key,
#include "cpu/entries.h"
#undef E0_ENTRY
};
const int format_of[] = {
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) FORMAT,
#include "cpu/entries.h"
#undef E0_ENTRY
};
const bool f32_scale[] = {
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) VARIANT == MMQ,
#include "cpu/entries.h"
#undef E0_ENTRY
};

// Quantised rows with room for every field a quantiser may store.
struct Rows {
    std::vector<int8_t> codes;
    std::vector<uint16_t> d16, s;
    std::vector<float> d32;
    bool wide;
    Rows(int64_t n, int64_t k, bool f32) : codes(n * k, -128), d16(n * k / 32, 0x7ee0), s(n * k / 32, 0x7ee0), d32(n * k / 32), wide(f32) {}
    Codes view() { return {codes.data(), wide ? nullptr : d16.data(), wide ? d32.data() : nullptr, wide ? nullptr : s.data()}; }
    void print(const std::string& name) const {
        report(name + "/codes", codes);
        if (wide) return report(name + "/d", d32);
        report(name + "/d", d16);
        report(name + "/s", s);
    }
};

std::unique_ptr<Packed> weights(Random& r, int format, int64_t experts, int64_t rows, int64_t k) {
    return std::make_unique<Packed>((e0::Format)format, random_weights(r, formats[format], (int)(experts * rows), (int)k).data(), experts,
                                    rows, k);
}

std::vector<int32_t> routes(Random& r) {      // distinct experts of each token, as a router gives them
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kTokens; ++i)
        for (int first = r.below(kExperts), j = 0; j < kChosen; ++j) ids.push_back((int32_t)((first + j) % kExperts));
    return ids;
}

void rows_entry(const KernelTable& t, int id) {
    Random r(31);
    const int64_t m = 37, k = 33 * 32;
    const auto w = weights(r, format_of[id], 1, m, k);
    const auto x = r.values((size_t)(kTokens * k), 5);
    Rows op(kTokens, k, f32_scale[id]);
    std::vector<float> out((size_t)(kTokens * m));
    t.rows[id]({&w->view(), x.data(), kTokens, op.view(), out.data(), 2});
    op.print(std::string("cpu/") + names[id] + "/operands");
    report(std::string("cpu/") + names[id] + "/rows", out);
}

void a1_entry(const KernelTable& t, int id) {
    Random r(32);
    const int64_t latent = 768, ff = 96, pairs = kTokens * kChosen;
    const auto gate = weights(r, format_of[id], kExperts, ff, latent), up = weights(r, format_of[id], kExperts, ff, latent);
    const auto xl = r.values((size_t)(kTokens * latent), 3);
    Rows xlq(kTokens, latent, false), h(pairs, ff, f32_scale[id]);
    t.quantise[Q_MMVQ]({xl.data(), kTokens, latent, xlq.view(), 1});
    const auto ids = routes(r);
    std::vector<float> g((size_t)(pairs * ff)), u(g.size());
    t.a1[id]({&gate->view(), &up->view(), xl.data(), xlq.view(), ids.data(), kTokens, kChosen, g.data(), u.data(), h.view(), 2});
    const std::string name = std::string("cpu/") + names[id];
    report(name + "/gate", g);
    report(name + "/up", u);
    h.print(name + "/h");
}

void a2_entry(const KernelTable& t, int id) {
    Random r(33);
    const int64_t latent = 37, ff = 33 * 32, pairs = kTokens * kChosen;
    const auto down = weights(r, format_of[id], kExperts, latent, ff);
    const auto x = r.values((size_t)(pairs * ff), 3), route = r.values((size_t)pairs, 1);
    Rows h(pairs, ff, f32_scale[id]);
    t.quantise[f32_scale[id] ? Q_MMQ : Q_MMVQ]({x.data(), pairs, ff, h.view(), 1});
    const auto ids = routes(r);
    std::vector<float> y((size_t)(pairs * latent)), yl((size_t)(kTokens * latent));
    t.a2[id]({&down->view(), h.view(), ids.data(), route.data(), kTokens, kChosen, y.data(), yl.data(), 2});
    const std::string name = std::string("cpu/") + names[id];
    report(name + "/y", y);
    report(name + "/yl", yl);
}

void quantisers(const KernelTable& t) {
    const char* const name[] = {"ggml-ref", "mmvq", "mmq", "ggml-x86"};
    Random r(34);
    const int64_t n = 64, k = 256;
    auto x = r.values((size_t)(n * k), 8);
    for (size_t i = 0; i < x.size() / 2; ++i) {           // half of them rounded to bfloat16, where exact ties live
        uint32_t u;
        std::memcpy(&u, &x[i], 4);
        u &= 0xffff0000u;
        std::memcpy(&x[i], &u, 4);
    }
    for (int i = 0; i < 32; ++i) {
        x[i] = 0.0f;
        x[32 + i] = i ? x[32 + i] : 1e30f * 1e30f;        // not finite
        x[64 + i] *= 3e36f;                               // d beyond float16
        x[96 + i] *= 1e-40f;                              // subnormal, reciprocal infinite
        x[128 + i] = 60000.0f + (float)i;                 // block sum beyond float16
    }
    for (int q = 0; q < kQuantisers; ++q) {
        Rows out(n, k, q == Q_MMQ);
        t.quantise[q]({x.data(), n, k, out.view(), 1});
        out.print(std::string("cpu/quantise/") + name[q]);
    }
}

}  // namespace

void run_variants() {
    const KernelTable& t = baseline::table();
    quantisers(t);
    for (int id = 0; id < kEntries; ++id) {
        if (t.rows[id]) rows_entry(t, id);
        if (t.a1[id]) a1_entry(t, id);
        if (t.a2[id]) a2_entry(t, id);
    }
    Random r(35);
    const auto x = r.values(4096, 6);
    std::vector<float> out(4096);
    t.exp(x.data(), out.data(), 4096);
    report("cpu/exp", out);
}
