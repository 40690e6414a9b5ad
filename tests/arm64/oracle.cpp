// The float64 oracle and the one-pass comparison.
#include "common.h"
#include "compare/onepass.h"
#include "study/rows.h"
#include "study/spread.h"

namespace e0_oracle {
namespace baseline { extern const Table table; extern const SpreadTable spread_table; }
}

void run_oracle() {
    using namespace e0_oracle;
    const int64_t E = 3, M = 21, K = 512, n = 37;
    Random r(11);
    std::vector<int8_t> q(E * M * K), sub(E * M * K / 16), codes(n * K);
    for (auto& v : q) v = (int8_t)(r.below(8) - 4);
    for (auto& v : sub) v = (int8_t)(r.below(64) - 32);
    for (auto& v : codes) v = (int8_t)(r.below(256) - 128);
    const auto d = r.values(E * M * 2, 8), da = r.values(n * K / 32, 8), w = r.values(E * M * K, 6), x = r.values(n * K, 6);
    std::vector<int64_t> order(n);
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    const Run runs[] = {{0, 0, 10}, {1, 10, 20}, {2, 30, 7}};
    std::vector<double> t(n * M), s(n * M);
    const Table& table = baseline::table;
    const Packed packed = table.pack(q.data(), d.data(), 2, sub.data(), E, M, K, 1);
    for (int granularity : {4, 16, 32}) {
        table.rows({&packed, codes.data(), da.data(), order.data(), runs, 3, granularity, t.data(), s.data(), 2});
        report("oracle/t/" + std::to_string(granularity), t);
        report("oracle/s/" + std::to_string(granularity), s);
    }
    const auto y = r.values(n * M, 8);
    for (Order kind : {Order::F64, Order::PRODUCT_FIRST, Order::Q3K_LANES, Order::Q3K_HALVES}) {
        BiasSums sums[3];
        baseline::spread_table.rows({&packed, codes.data(), da.data(), false, kind, order.data(), runs, 3, y.data(), sums, 2});
        for (const BiasSums& b : sums) {
            const double totals[] = {b.n, b.z, b.zz, b.zs, b.zx, b.xx, b.suspects};
            report("oracle/bias/totals/" + std::to_string((int)kind), totals, 7);
            report("oracle/bias/blocks/" + std::to_string((int)kind), b.zb);
            report("oracle/bias/columns/" + std::to_string((int)kind), b.column_zz);
        }
    }
    const PackedFloats floats = table.pack_floats(w.data(), E, M, K, 1);
    table.float_rows({&floats, x.data(), nullptr, order.data(), runs, 3, t.data(), 1});
    report("oracle/float-rows", t);
}

void run_onepass() {
    using namespace e0;
    const int64_t n = 5003;
    Random r(12);
    auto a = r.values(n, 20);
    auto b = a;
    for (int64_t i = 0; i < n; i += 3) b[i] = a[i] * (1 + r.value(3) * 1e-5f);
    b[17] = a[40] = 0.0f / (a[0] - a[0]);
    b[18] = 1e30f * 1e30f;
    Options options;
    options.ulp_histogram = true;
    Partial p;
    baseline::compare_segment(a.data(), b.data(), n, 1000, options, p);
    const int64_t counts[] = {p.n, p.equal, p.finite, p.nan_a, p.nan_b, p.inf_b, p.unlike, p.first_unequal, p.abs.place, p.rel.place,
                              p.ulp.place, (int64_t)p.ulp.value};
    const double peaks[] = {p.abs.value, p.rel.value};
    report("onepass/counts", counts, sizeof counts / 8);
    report("onepass/peaks", peaks, 2);
    report("onepass/sums", p.sums, kSums);
    report("onepass/ulp-histogram", p.ulp_histogram, kUlpBuckets);
}
