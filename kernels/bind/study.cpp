// Bindings of edge0verify.study._oracle: checked numpy arrays in and out, the GIL released while threads work.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "port/pool.h"
#include "study/rows.h"
#include "study/spread.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace e0_oracle {
#define E0_DECLARE(isa) namespace isa { extern const Table table; extern const SpreadTable spread_table; }
#ifdef E0_HAVE_baseline
E0_DECLARE(baseline)
#endif
#ifdef E0_HAVE_avx2
E0_DECLARE(avx2)
#endif
#ifdef E0_HAVE_avx512
E0_DECLARE(avx512)
#endif
}  // namespace e0_oracle

using namespace e0_oracle;

namespace {

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

struct Isa {
    const Table* rows;
    const SpreadTable* spread;
};

std::vector<Isa> usable() {
    std::vector<Isa> out;
#ifdef E0_HAVE_avx512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        out.push_back({&avx512::table, &avx512::spread_table});
#endif
#ifdef E0_HAVE_avx2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        out.push_back({&avx2::table, &avx2::spread_table});
#endif
    out.push_back({&baseline::table, &baseline::spread_table});
    return out;
}

Isa by_name(const std::string& name) {
    for (const Isa& isa : usable())
        if (name.empty() || name == isa.rows->name) return isa;
    throw std::invalid_argument("instruction set " + name + ": not built or not usable on this machine");
}

void need(bool ok, const std::string& message) {
    if (!ok) throw std::invalid_argument(message);
}

template <class A>
std::string shape(const A& a) {
    std::string s = "[";
    for (size_t i = 0; i < a.ndim(); ++i) s += (i ? ", " : "") + std::to_string(a.shape(i));
    return s + "]";
}

template <class A>
void need_matrix(const A& a, const char* name, int64_t rows, int64_t cols) {
    need(a.ndim() == 2 && (int64_t)a.shape(0) == rows && (int64_t)a.shape(1) == cols,
         std::string(name) + ": expected [" + std::to_string(rows) + ", " + std::to_string(cols) + "], found " + shape(a));
}

// [experts, rows, cols] of a weight array that may lack the expert axis.
template <class A>
void weight_shape(const A& a, const char* name, int64_t& experts, int64_t& rows, int64_t& cols) {
    need(a.ndim() == 2 || a.ndim() == 3, std::string(name) + ": expected [rows, cols] or [experts, rows, cols], found " + shape(a));
    const size_t at = a.ndim() - 2;
    experts = at ? (int64_t)a.shape(0) : 1;
    rows = (int64_t)a.shape(at);
    cols = (int64_t)a.shape(at + 1);
}

struct Weights {
    Isa isa;
    Packed packed;
};

struct FloatWeights {
    const Table* isa;
    PackedFloats packed;
};

void make_weights(Weights* self, In<int8_t> q, In<float> d, std::optional<In<int8_t>> sub, const std::string& isa, int threads) {
    int64_t e, m, k, de, dm, per_row;
    weight_shape(q, "q", e, m, k);
    weight_shape(d, "d", de, dm, per_row);
    need(k > 0 && k % 32 == 0, "q: expected columns in multiples of 32, found " + std::to_string(k));
    need(de == e && dm == m && per_row > 0 && (k / 32) % per_row == 0, "d: does not fit q " + shape(q) + ", found " + shape(d));
    if (sub) {
        int64_t se, sm, sk;
        weight_shape(*sub, "sub", se, sm, sk);
        need(se == e && sm == m && sk == k / 16, "sub: expected one scale per 16 values of q " + shape(q) + ", found " + shape(*sub));
    }
    const Isa table = by_name(isa);
    Packed packed;
    {
        nb::gil_scoped_release free;
        packed = table.rows->pack(q.data(), d.data(), per_row, sub ? sub->data() : nullptr, e, m, k, threads);
    }
    new (self) Weights{table, std::move(packed)};
}

void make_float_weights(FloatWeights* self, In<float> w, const std::string& isa, int threads) {
    int64_t e, m, k;
    weight_shape(w, "w", e, m, k);
    const Table& table = *by_name(isa).rows;
    PackedFloats packed;
    {
        nb::gil_scoped_release free;
        packed = table.pack_floats(w.data(), e, m, k, threads);
    }
    new (self) FloatWeights{&table, std::move(packed)};
}

struct Plan {
    std::vector<int64_t> order;
    std::vector<Run> runs;
};

// Rows grouped by expert (a stable counting sort), cut into runs short enough to share among threads.
Plan make_plan(const std::optional<In<int32_t>>& experts, int64_t n, int64_t n_experts) {
    constexpr int64_t kRun = 64;
    Plan plan;
    plan.order.resize((size_t)n);
    std::vector<int64_t> start((size_t)n_experts + 1, 0);
    if (experts) {
        need(experts->ndim() == 1 && (int64_t)experts->shape(0) == n,
             "experts: expected [" + std::to_string(n) + "], found " + shape(*experts));
        const int32_t* id = experts->data();
        for (int64_t i = 0; i < n; ++i) {
            need(id[i] >= 0 && id[i] < n_experts, "experts: row " + std::to_string(i) + ": expected 0.." + std::to_string(n_experts - 1) +
                                                      ", found " + std::to_string(id[i]));
            ++start[(size_t)id[i] + 1];
        }
        for (int64_t e = 0; e < n_experts; ++e) start[e + 1] += start[e];
        std::vector<int64_t> next(start.begin(), start.end() - 1);
        for (int64_t i = 0; i < n; ++i) plan.order[next[id[i]]++] = i;
    } else {
        need(n_experts == 1, "experts: expected the expert of each row, since the weights have " + std::to_string(n_experts));
        for (int64_t i = 0; i < n; ++i) plan.order[i] = i;
        start[1] = n;
    }
    for (int64_t e = 0; e < n_experts; ++e)
        for (int64_t i = start[e]; i < start[e + 1]; i += kRun) plan.runs.push_back({e, i, (int32_t)std::min(kRun, start[e + 1] - i)});
    return plan;
}

void rows(const Weights& w, In<int8_t> codes, In<float> scales, int granularity, std::optional<In<int32_t>> experts, Out<double> t,
          Out<double> s, int threads) {
    const Packed& p = w.packed;
    need(codes.ndim() == 2, "codes: expected [rows, cols], found " + shape(codes));
    const int64_t n = (int64_t)codes.shape(0);
    need_matrix(codes, "codes", n, p.cols);
    need_matrix(scales, "scales", n, p.cols / 32);
    need_matrix(t, "t", n, p.rows);
    need_matrix(s, "s", n, p.rows);
    need(granularity == 4 || granularity == 16 || granularity == 32,
         "granularity: expected 4, 16 or 32, found " + std::to_string(granularity));
    const Plan plan = make_plan(experts, n, p.experts);
    nb::gil_scoped_release free;
    w.isa.rows->rows({&p, codes.data(), scales.data(), plan.order.data(), plan.runs.data(), (int64_t)plan.runs.size(), granularity, t.data(),
                 s.data(), threads});
}

void float_rows(const FloatWeights& w, nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> x, std::optional<In<int32_t>> experts,
                Out<double> out, int threads) {
    const PackedFloats& p = w.packed;
    need(x.ndim() == 2, "x: expected [rows, cols], found " + shape(x));
    const int64_t n = (int64_t)x.shape(0);
    need_matrix(x, "x", n, p.cols);
    need_matrix(out, "out", n, p.rows);
    const bool single = x.dtype() == nb::dtype<float>();
    need(single || x.dtype() == nb::dtype<double>(), "x: expected float32 or float64");
    const Plan plan = make_plan(experts, n, p.experts);
    nb::gil_scoped_release free;
    w.isa->float_rows({&p, single ? (const float*)x.data() : nullptr, single ? nullptr : (const double*)x.data(), plan.order.data(),
                       plan.runs.data(), (int64_t)plan.runs.size(), out.data(), threads});
}

// h = silu(g)*p and its bound, element by element.
void swiglu(In<double> g, In<double> p, In<double> bg, In<double> bp, Out<double> h, Out<double> bound, int threads) {
    const size_t n = g.size();
    need(p.size() == n && bg.size() == n && bp.size() == n && h.size() == n && bound.size() == n, "swiglu: sizes differ");
    const double *pg = g.data(), *pp = p.data(), *pbg = bg.data(), *pbp = bp.data();
    double *ph = h.data(), *pb = bound.data();
    nb::gil_scoped_release free;
    constexpr size_t kPart = 1 << 14;
    e0::parallel_for((int64_t)((n + kPart - 1) / kPart), threads, [&](int64_t part) {
        const size_t end = std::min(n, (size_t)(part + 1) * kPart);
        for (size_t i = (size_t)part * kPart; i < end; ++i) {
            // The slope of silu lies within (-0.1, 1.1); g*sigmoid(g) is written so that exp never overflows to inf/inf.
            const double e = std::exp(-std::fabs(pg[i]));
            const double silu = pg[i] * (pg[i] < 0 ? e / (1 + e) : 1 / (1 + e));
            const double y = silu * pp[i];
            ph[i] = y;
            pb[i] = 1.1 * pbg[i] * std::fabs(pp[i]) + std::fabs(silu) * pbp[i] + 1.1 * pbg[i] * pbp[i] + 6 * 0x1p-24 * std::fabs(y);
        }
    });
}

// Sums over the k pairs of each token: out_t = sum w*t, out_s = sum |w|*s.
void expert_sum(In<double> t, In<double> s, In<float> w, Out<double> out_t, Out<double> out_s, int threads) {
    need(w.ndim() == 2 && out_t.ndim() == 2, "expert_sum: expected weights [tokens, k] and sums [tokens, m]");
    const int64_t n = (int64_t)w.shape(0), k = (int64_t)w.shape(1), m = (int64_t)out_t.shape(1);
    need_matrix(t, "t", n * k, m);
    need_matrix(s, "s", n * k, m);
    need_matrix(out_t, "out_t", n, m);
    need_matrix(out_s, "out_s", n, m);
    const double *pt = t.data(), *ps = s.data();
    const float* pw = w.data();
    double *qt = out_t.data(), *qs = out_s.data();
    nb::gil_scoped_release free;
    e0::parallel_for(n, threads, [&](int64_t i) {
        double *a = qt + i * m, *b = qs + i * m;
        std::fill(a, a + m, 0.0);
        std::fill(b, b + m, 0.0);
        for (int64_t j = 0; j < k; ++j) {
            const double weight = pw[i * k + j], size = std::fabs(weight);
            const double *x = pt + (i * k + j) * m, *y = ps + (i * k + j) * m;
            for (int64_t c = 0; c < m; ++c) {
                a[c] += weight * x[c];
                b[c] += size * y[c];
            }
        }
    });
}

// Where the sums of the bias test go: [7] counts and totals, [2, terms], [4, columns].
struct SumsOut {
    Out<double> totals, blocks, columns;
};

void need_sums(const SumsOut& out, int64_t terms, int64_t columns) {
    need(out.totals.ndim() == 1 && out.totals.shape(0) == 7, "totals: expected [7], found " + shape(out.totals));
    need_matrix(out.blocks, "blocks", 2, terms);
    need_matrix(out.columns, "columns", 4, columns);
}

// Adds the parts in their order, so that no number depends on threads, and returns the places of suspects.
std::vector<std::tuple<int64_t, int64_t, double>> add_up(const std::vector<BiasSums>& parts, const SumsOut& out, int64_t terms, int64_t columns) {
    std::vector<std::tuple<int64_t, int64_t, double>> places;
    double *total = out.totals.data(), *block = out.blocks.data(), *column = out.columns.data();
    for (const BiasSums& s : parts) {
        const double values[] = {s.n, s.z, s.zz, s.zs, s.zx, s.xx, s.suspects};
        for (int i = 0; i < 7; ++i) total[i] += values[i];
        for (int64_t b = 0; b < terms; ++b) {
            block[b] += s.zb[b];
            block[terms + b] += s.bb[b];
        }
        for (int64_t c = 0; c < columns; ++c) {
            column[c] += s.column_n[c];
            column[columns + c] += s.column_z[c];
            column[2 * columns + c] += s.column_zz[c];
            column[3 * columns + c] += s.column_zs[c];
        }
        for (const Place& p : s.places) places.emplace_back(p.row, p.column, p.z);
    }
    std::sort(places.begin(), places.end());
    return places;
}

auto spread_rows(const Weights& w, In<int8_t> codes, In<float> scales, bool narrow, const std::string& order,
                 std::optional<In<int32_t>> experts, In<float> y, Out<double> totals, Out<double> blocks, Out<double> columns, int threads) {
    static const char* const names[] = {"f64", "lanes", "product-first", "dot-first", "q3k-lanes", "q3k-halves"};
    const auto at = std::find(std::begin(names), std::end(names), order);
    need(at != std::end(names), "order: found " + order);
    const Order kind = (Order)(at - std::begin(names));
    const Packed& p = w.packed;
    need(p.has_sub || kind < Order::Q3K_LANES, "order " + order + ": expected weights with a scale per 16 values");
    need(codes.ndim() == 2, "codes: expected [rows, cols], found " + shape(codes));
    const int64_t n = (int64_t)codes.shape(0);
    need_matrix(codes, "codes", n, p.cols);
    need_matrix(scales, "scales", n, p.cols / 32);
    need_matrix(y, "y", n, p.rows);
    const SumsOut out{totals, blocks, columns};
    need_sums(out, p.cols / 32, p.rows);
    const Plan plan = make_plan(experts, n, p.experts);
    std::vector<BiasSums> parts(plan.runs.size());
    nb::gil_scoped_release free;
    w.isa.spread->rows({&p, codes.data(), scales.data(), narrow, kind, plan.order.data(), plan.runs.data(), (int64_t)plan.runs.size(),
                        y.data(), parts.data(), threads});
    return add_up(parts, out, p.cols / 32, p.rows);
}

auto spread_experts(In<float> y, In<float> weights, In<int32_t> slots, In<float> yl, bool once, Out<double> totals, Out<double> blocks,
                    Out<double> columns, const std::string& isa, int threads) {
    need(weights.ndim() == 2 && yl.ndim() == 2, "expected weights [rows, k] and yl [rows, m]");
    const int64_t n = (int64_t)weights.shape(0), k = (int64_t)weights.shape(1), m = (int64_t)yl.shape(1);
    need_matrix(y, "y", n * k, m);
    need_matrix(slots, "slots", n, k);
    need_matrix(yl, "yl", n, m);
    for (int64_t i = 0; i < n * k; ++i) need(slots.data()[i] >= 0 && slots.data()[i] < k, "slots: expected numbers below k");
    const SumsOut out{totals, blocks, columns};
    need_sums(out, k, m);
    constexpr int64_t kRows = 256;
    std::vector<BiasSums> parts((size_t)((n + kRows - 1) / kRows));
    const Isa table = by_name(isa);
    nb::gil_scoped_release free;
    table.spread->experts({y.data(), weights.data(), slots.data(), yl.data(), n, k, m, once, kRows, parts.data(), threads});
    return add_up(parts, out, k, m);
}

}  // namespace

NB_MODULE(_oracle, m) {
    m.doc() = "float64 values of quantised products from their operands; independent of the kernels it judges";
    m.def("isas", [] {
        std::vector<std::string> names;
        for (const Isa& t : usable()) names.push_back(t.rows->name);
        return names;
    }, "Instruction sets built and usable here, best first.");
    nb::class_<Weights>(m, "Weights")
        .def("__init__", make_weights, "q"_a, "d"_a, "sub"_a = nb::none(), "isa"_a = "", "threads"_a = 1)
        .def_prop_ro("shape", [](const Weights& w) { return nb::make_tuple(w.packed.experts, w.packed.rows, w.packed.cols); })
        .def_prop_ro("isa", [](const Weights& w) { return std::string(w.isa.rows->name); });
    nb::class_<FloatWeights>(m, "FloatWeights")
        .def("__init__", make_float_weights, "w"_a, "isa"_a = "", "threads"_a = 1)
        .def_prop_ro("shape", [](const FloatWeights& w) { return nb::make_tuple(w.packed.experts, w.packed.rows, w.packed.cols); });
    m.def("rows", rows, "weights"_a, "codes"_a, "scales"_a, "granularity"_a, "experts"_a.none(), "t"_a, "s"_a, "threads"_a = 1);
    m.def("float_rows", float_rows, "weights"_a, "x"_a, "experts"_a.none(), "out"_a, "threads"_a = 1);
    m.def("spread_rows", spread_rows, "weights"_a, "codes"_a, "scales"_a, "narrow"_a, "order"_a, "experts"_a.none(), "y"_a, "totals"_a,
          "blocks"_a, "columns"_a, "threads"_a = 1);
    m.def("spread_experts", spread_experts, "y"_a, "weights"_a, "slots"_a, "yl"_a, "once"_a, "totals"_a, "blocks"_a, "columns"_a,
          "isa"_a = "", "threads"_a = 1);
    m.def("swiglu", swiglu, "g"_a, "p"_a, "bg"_a, "bp"_a, "h"_a, "bound"_a, "threads"_a = 1);
    m.def("expert_sum", expert_sum, "t"_a, "s"_a, "weights"_a, "out_t"_a, "out_s"_a, "threads"_a = 1);
}
