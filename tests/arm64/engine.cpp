// The engine's own kernels: norm, rotation, dense products, attention, routing, log-probabilities.
#include "common.h"
#include "engine/table.h"

using namespace e0;

static void attention(const Table& t) {
    const int heads = 3, dim = 64, tokens = kAttendTokens, keys = 41, tiles = 12;     // tiles: a multiple of 4, as scratch is sized
    Random r(7);
    const auto q = r.values((size_t)tokens * heads * dim, 2), v = r.values((size_t)tiles * kLanes * dim, 2);
    const auto k = r.values((size_t)tiles * dim * kLanes, 2);
    std::vector<float> out(q.size()), scratch((size_t)tokens * heads * tiles * kLanes);
    t.attend({q.data(), out.data(), k.data(), v.data(), heads * dim, keys - tokens + 1, tokens, heads, dim, 0.125f, scratch.data(),
              tiles * kLanes});
    report("engine/attend", out);
}

static void dense(const Table& t) {
    const int64_t K = 96, M = 29;
    Random r(8);
    for (int rows : {1, 5, kDenseRows}) {
        const auto x = r.values((size_t)(rows * K), 4);
        auto packed = r.values((size_t)(2 * K * kLanes), 4);
        for (int64_t c = 0; c < K; ++c)
            for (int64_t m = M; m < 2 * kLanes; ++m) packed[(size_t)(((m / kLanes) * K + c) * kLanes + m % kLanes)] = 0;
        std::vector<float> y((size_t)(rows * M));
        std::vector<const float*> from;
        std::vector<float*> to;
        for (int i = 0; i < rows; ++i) {
            from.push_back(x.data() + i * K);
            to.push_back(y.data() + i * M);
        }
        t.dense({from.data(), to.data(), rows, packed.data(), K, M});
        report("engine/dense/" + std::to_string(rows), y);
    }
}

void run_engine() {
    const Table& t = *engine_table_baseline();
    Random r(1);
    const int n = 384;
    const auto x = r.values(n, 6), w = r.values(n, 2);
    std::vector<float> y(n);
    t.rmsnorm(x.data(), w.data(), y.data(), n, 9.999999974752427e-07);
    report("engine/rmsnorm", y);

    std::vector<double> freq(32), s(4000), c(4000), a(4000);
    for (int i = 0; i < 32; ++i) freq[i] = 1.0 / (1 + i * i * 3.25);
    std::vector<float> cosine(32), sine(32);
    for (int64_t at : {0, 1, 5267}) {
        t.rope_angles(at, freq.data(), 32, cosine.data(), sine.data());
        report("engine/rope-cos/" + std::to_string(at), cosine);
        report("engine/rope-sin/" + std::to_string(at), sine);
    }
    y = x;
    t.rope(y.data(), cosine.data(), sine.data(), n / 64, 64);
    report("engine/rope", y);
    for (auto& v : a) v = (double)r.value(12);
    t.sincos(a.data(), s.data(), c.data(), 4000);
    report("engine/sin", s);
    report("engine/cos", c);
    for (auto& v : a) v = v < 0 ? -v : v;
    t.exp_log(a.data(), s.data(), c.data(), 4000);
    report("engine/exp", s);
    report("engine/log", c);

    y = x;
    t.add(y.data(), w.data(), n);
    report("engine/add", y);
    const auto gate = r.values(4096, 7), up = r.values(4096, 4);
    std::vector<float> h(4096);
    t.swiglu(gate.data(), up.data(), h.data(), 4096);
    report("engine/swiglu", h);
    std::vector<float> sum(1024);
    t.weighted_sum(gate.data(), up.data(), sum.data(), 4, 1024);
    report("engine/weighted-sum", sum);

    const auto logits = r.values(288, 3);
    std::vector<int32_t> ids(8);
    std::vector<float> weights(8), scratch(288);
    t.route(logits.data(), 16, 4, ids.data(), weights.data(), scratch.data());
    report("engine/route-ids", ids.data(), 4);
    report("engine/route-weights", weights.data(), 4);
    t.top_logprobs(logits.data(), 288, 8, ids.data(), weights.data());
    report("engine/top8-ids", ids);
    report("engine/top8-logprobs", weights);
    dense(t);
    attention(t);
}
