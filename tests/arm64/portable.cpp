// The portable kernels in phase form.
#include "common.h"
#include "portable/entries.h"
#include "weights.h"

void run_portable() {
    const char* variants[] = {"ref", "mmvq", "mmq", "w11"};
    const int E = 2, M = 37, K = 768, N = 19;
    for (const Format& f : formats) {
        Random r(21);
        const auto w = random_weights(r, f, E * M, K);
        const auto x = r.values((size_t)N * K, 5);
        std::vector<int32_t> ids(N);
        for (auto& v : ids) v = r.below(E);
        for (const char* v : variants) {
            const bool mmq = !std::strcmp(v, "mmq");
            std::vector<int8_t> codes((size_t)N * K);
            std::vector<uint16_t> d16((size_t)N * K / 32), s(d16.size());
            std::vector<float> d32(d16.size()), out((size_t)N * M, -1.0f);
            void* d = mmq ? (void*)d32.data() : (void*)d16.data();
            e0_phase_quantise(mmq ? "mmq" : "mmvq", x.data(), (int64_t)N * K, codes.data(), d, mmq ? nullptr : s.data(), nullptr, 2);
            const int rc = e0_phase_rows(v, f.name, w.data(), codes.data(), d, ids.data(), E, 1, out.data(), M, N, K, nullptr, 2);
            const std::string name = std::string("portable/") + v + "/" + f.name;
            report(name + "/codes", codes);
            mmq ? report(name + "/d", d32) : report(name + "/d", d16);
            if (rc == 0) report(name + "/rows", out);
            else std::printf("%s none\n", name.c_str());
        }
    }
    Random r(22);
    const auto gate = r.values(4096, 7), up = r.values(4096, 4);
    std::vector<float> h(4096);
    std::vector<int8_t> codes(4096);
    std::vector<uint16_t> d(128), s(128);
    e0_phase_swiglu("mmvq", gate.data(), up.data(), 4096, h.data(), codes.data(), d.data(), s.data(), nullptr, 1);
    report("portable/swiglu", h);
    report("portable/swiglu/codes", codes);
    report("portable/swiglu/s", s);
    std::vector<float> e(4096);
    e0_phase_exp(gate.data(), 4096, e.data(), nullptr, 1);
    report("portable/exp", e);
}
