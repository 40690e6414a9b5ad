// Python module edge0verify.engine._native: checks shapes, spreads items over threads, calls the table of the chosen instruction set.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind/engine_cache.h"
#include "engine/table.h"
#include "port/pool.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace e0 {
namespace {

template <class T> using Array1 = nb::ndarray<T, nb::numpy, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using Array2 = nb::ndarray<T, nb::numpy, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Array3 = nb::ndarray<T, nb::numpy, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using F1 = Array1<const float>;
using F2 = Array2<const float>;
using Out2 = Array2<float>;

void require(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(what);
}

// ---- instruction sets --------------------------------------------------------------------------------------------------------
std::vector<const Table*> built() {
    return {
#ifdef E0_HAVE_baseline
        engine_table_baseline(),
#endif
#ifdef E0_HAVE_avx2
        engine_table_avx2(),
#endif
#ifdef E0_HAVE_avx512
        engine_table_avx512(),
#endif
    };
}

bool runs_here(const std::string& isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    if (isa == "avx512")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
#endif
    return isa == "baseline";
}

const Table* best() {
    const Table* found = nullptr;
    for (const Table* t : built())
        if (runs_here(t->isa)) found = t;
    return found;
}

const Table*& current() {
    static const Table* table = best();
    return table;
}

std::vector<std::string> names(bool usable) {
    std::vector<std::string> out;
    for (const Table* t : built())
        if (!usable || runs_here(t->isa)) out.push_back(t->isa);
    return out;
}

void set_isa(const std::string& name) {
    for (const Table* t : built())
        if (name == t->isa) {
            require(runs_here(name), ("set_isa: this processor cannot run '" + name + "'").c_str());
            current() = t;
            return;
        }
    throw std::invalid_argument("set_isa: '" + name + "' is not built");
}

// ---- threads -----------------------------------------------------------------------------------------------------------------
// A team costs tens of microseconds, so short loops (decode) stay on the caller's thread.  `work` is in multiply-adds, roughly.
int team(int threads, int64_t work) { return work < 400000 ? 1 : std::max(1, threads); }

// Score rows of the attention: kept between calls, one per running item.
class ScratchPool {
public:
    Floats take() {
        std::lock_guard<std::mutex> hold(mutex_);
        if (free_.empty()) return Floats();
        Floats f = std::move(free_.back());
        free_.pop_back();
        return f;
    }
    void give(Floats f) {
        std::lock_guard<std::mutex> hold(mutex_);
        free_.push_back(std::move(f));
    }

private:
    std::mutex mutex_;
    std::vector<Floats> free_;
};

// ---- rows --------------------------------------------------------------------------------------------------------------------
constexpr int64_t kRowBlock = 16;      // rows handed to a thread at a time

template <class Body>
void over_rows(int64_t n, int threads, int64_t work_per_row, Body body) {
    parallel_for((n + kRowBlock - 1) / kRowBlock, team(threads, n * work_per_row), [&](int64_t b) {
        for (int64_t i = b * kRowBlock, end = std::min(n, i + kRowBlock); i < end; ++i) body(i);
    });
}

void rmsnorm(F2 x, F1 w, Out2 y, double eps, int threads) {
    int64_t n = x.shape(0), h = x.shape(1);
    require((int64_t)w.shape(0) == h && (int64_t)y.shape(0) == n && (int64_t)y.shape(1) == h, "rmsnorm: x [n,h], w [h], y [n,h]");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, 4 * h, [&](int64_t i) { t->rmsnorm(x.data() + i * h, w.data(), y.data() + i * h, h, eps); });
}

void rope_angles(int64_t first, Array1<const double> inv_freq, Out2 cos, Out2 sin) {
    int64_t n = cos.shape(0), half = inv_freq.shape(0);
    require((int64_t)cos.shape(1) == half && (int64_t)sin.shape(0) == n && (int64_t)sin.shape(1) == half, "rope_angles: cos, sin [n, half]");
    require(first >= 0 && first + n <= (1 << 19), "rope_angles: positions 0 .. 2^19 - 1");
    for (int64_t i = 0; i < n; ++i) current()->rope_angles(first + i, inv_freq.data(), half, cos.data() + i * half, sin.data() + i * half);
}

void rope(Out2 x, F2 cos, F2 sin, int64_t heads, int threads) {
    int64_t n = x.shape(0), width = x.shape(1), half = cos.shape(1);
    require(heads > 0 && width == heads * half * 2 && (int64_t)cos.shape(0) == n && (int64_t)sin.shape(0) == n && (int64_t)sin.shape(1) == half,
            "rope: x [n, heads*2*half], cos, sin [n, half]");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, 2 * width, [&](int64_t i) { t->rope(x.data() + i * width, cos.data() + i * half, sin.data() + i * half, heads, 2 * half); });
}

void add(Out2 x, F2 y, int threads) {
    int64_t n = x.shape(0), h = x.shape(1);
    require((int64_t)y.shape(0) == n && (int64_t)y.shape(1) == h, "add: x, y of one shape");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, h, [&](int64_t i) { t->add(x.data() + i * h, y.data() + i * h, h); });
}

void swiglu(F2 gate, F2 up, Out2 h, int threads) {
    int64_t n = gate.shape(0), f = gate.shape(1);
    require((int64_t)up.shape(0) == n && (int64_t)up.shape(1) == f && (int64_t)h.shape(0) == n && (int64_t)h.shape(1) == f,
            "swiglu: gate, up, h of one shape");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, 8 * f, [&](int64_t i) { t->swiglu(gate.data() + i * f, up.data() + i * f, h.data() + i * f, f); });
}

void weighted_sum(F2 y, F2 w, Out2 out, int threads) {
    int64_t n = w.shape(0), k = w.shape(1), m = y.shape(1);
    require((int64_t)y.shape(0) == n * k && (int64_t)out.shape(0) == n && (int64_t)out.shape(1) == m, "weighted_sum: y [n*k,m], w [n,k], out [n,m]");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, k * m, [&](int64_t i) { t->weighted_sum(y.data() + i * k * m, w.data() + i * k, out.data() + i * m, k, m); });
}

void route(F2 logits, Array2<int32_t> ids, Out2 weights, int threads) {
    int64_t n = logits.shape(0), e = logits.shape(1), k = ids.shape(1);
    require(k >= 1 && k <= e && (int64_t)ids.shape(0) == n && (int64_t)weights.shape(0) == n && (int64_t)weights.shape(1) == k,
            "route: logits [n,experts], ids, weights [n,k], 1 <= k <= experts");
    const Table* t = current();
    nb::gil_scoped_release free;
    parallel_for((n + kRowBlock - 1) / kRowBlock, team(threads, n * e * 16), [&](int64_t b) {
        std::vector<float> scratch(e);
        for (int64_t i = b * kRowBlock, end = std::min(n, i + kRowBlock); i < end; ++i)
            t->route(logits.data() + i * e, e, k, ids.data() + i * k, weights.data() + i * k, scratch.data());
    });
}

void top_logprobs(F2 logits, Array2<int32_t> ids, Out2 logprobs, int threads) {
    int64_t n = logits.shape(0), v = logits.shape(1), k = ids.shape(1);
    require(k >= 1 && k <= v && (int64_t)ids.shape(0) == n && (int64_t)logprobs.shape(0) == n && (int64_t)logprobs.shape(1) == k,
            "top_logprobs: logits [n,V], ids, logprobs [n,k], 1 <= k <= V");
    const Table* t = current();
    nb::gil_scoped_release free;
    over_rows(n, threads, 40 * v, [&](int64_t i) { t->top_logprobs(logits.data() + i * v, v, k, ids.data() + i * k, logprobs.data() + i * k); });
}

// ---- dense weights -----------------------------------------------------------------------------------------------------------
class Dense {
public:
    Dense(const Dense&) = delete;
    Dense& operator=(const Dense&) = delete;
    explicit Dense(Array3<const float> w) : experts_(w.shape(0)), m_(w.shape(1)), k_(w.shape(2)) {
        int64_t tiles = (m_ + 15) / 16;
        per_expert_ = tiles * k_ * 16;
        packed_.grow(experts_ * per_expert_);
        for (int64_t e = 0; e < experts_; ++e)
            for (int64_t m = 0; m < m_; ++m)
                for (int64_t k = 0; k < k_; ++k)
                    packed_.data()[e * per_expert_ + (m / 16 * k_ + k) * 16 + m % 16] = w.data()[(e * m_ + m) * k_ + k];
    }

    // out[i] = W[expert of i] x[row of i]; rows are collected by expert, which changes the schedule and no sum.
    void run(F2 x, Array1<const int32_t> experts, Array1<const int32_t> rows, Out2 out, int threads) const {
        int64_t n = out.shape(0), in = x.shape(0);
        require((int64_t)x.shape(1) == k_ && (int64_t)out.shape(1) == m_, "Dense.run: x [*,K], out [n,M]");
        require((int64_t)experts.shape(0) == n && (int64_t)rows.shape(0) == n, "Dense.run: experts, rows [n]");
        std::vector<int64_t> start(experts_ + 1, 0);
        for (int64_t i = 0; i < n; ++i) {
            require(experts.data()[i] >= 0 && experts.data()[i] < experts_, "Dense.run: expert id outside the weights");
            require(rows.data()[i] >= 0 && rows.data()[i] < in, "Dense.run: row outside x");
            ++start[experts.data()[i] + 1];
        }
        for (int64_t e = 0; e < experts_; ++e) start[e + 1] += start[e];
        std::vector<const float*> from(n);
        std::vector<float*> to(n);
        std::vector<int64_t> at(start.begin(), start.end() - 1);
        for (int64_t i = 0; i < n; ++i) {
            int64_t p = at[experts.data()[i]]++;
            from[p] = x.data() + rows.data()[i] * k_;
            to[p] = out.data() + i * m_;
        }
        std::vector<DenseItem> items;
        for (int64_t e = 0; e < experts_; ++e)
            for (int64_t i = start[e]; i < start[e + 1]; i += kDenseRows)
                items.push_back({from.data() + i, to.data() + i, (int)std::min<int64_t>(kDenseRows, start[e + 1] - i),
                                 packed_.data() + e * per_expert_, k_, m_});
        const Table* t = current();
        nb::gil_scoped_release free;
        parallel_for((int64_t)items.size(), team(threads, n * m_ * k_), [&](int64_t i) { t->dense(items[i]); });
    }

    void run_all(F2 x, Out2 out, int threads) const {
        int64_t n = x.shape(0);
        require(experts_ == 1, "Dense: weights of several experts need expert ids");
        require((int64_t)x.shape(1) == k_ && (int64_t)out.shape(0) == n && (int64_t)out.shape(1) == m_, "Dense: x [n,K], out [n,M]");
        const Table* t = current();
        nb::gil_scoped_release free;
        parallel_for((n + kDenseRows - 1) / kDenseRows, team(threads, n * m_ * k_), [&](int64_t b) {
            const float* from[kDenseRows];
            float* to[kDenseRows];
            int64_t i = b * kDenseRows;
            int rows = (int)std::min<int64_t>(kDenseRows, n - i);
            for (int r = 0; r < rows; ++r) {
                from[r] = x.data() + (i + r) * k_;
                to[r] = out.data() + (i + r) * m_;
            }
            t->dense({from, to, rows, packed_.data(), k_, m_});
        });
    }

    int64_t experts() const { return experts_; }
    int64_t rows() const { return m_; }
    int64_t cols() const { return k_; }

private:
    int64_t experts_, m_, k_, per_expert_ = 0;
    Floats packed_;
};

// ---- attention ---------------------------------------------------------------------------------------------------------------
void attention(F2 q, const KvCache& cache, Out2 out, int64_t heads, double scale, int threads) {
    static ScratchPool pool;
    int64_t n = q.shape(0), width = q.shape(1), dim = cache.dim();
    require(heads > 0 && width == heads * dim && (int64_t)out.shape(0) == n && (int64_t)out.shape(1) == width, "attention: q, out [n, heads*dim]");
    require(heads % cache.kv_heads() == 0, "attention: heads in multiples of kv heads");
    require(cache.length() >= n, "attention: the keys of the queries come first");
    int64_t group = heads / cache.kv_heads(), first = cache.length() - n, kv = cache.kv_heads();
    require(group <= 16, "attention: at most 16 query heads for a kv head");
    int64_t blocks = (n + kAttendTokens - 1) / kAttendTokens;
    int64_t stride = (cache.length() + 63) / 64 * 64 + 16;      // + 16: rows that do not start in the same cache set
    const Table* t = current();
    nb::gil_scoped_release free;
    // Late blocks see the most keys: they go first, so that no thread is left with a long one at the end.
    parallel_for(blocks * kv, team(threads, n * cache.length() * width), [&](int64_t item) {
        int64_t token = (blocks - 1 - item / kv) * kAttendTokens, head = item % kv;
        int tokens = (int)std::min<int64_t>(kAttendTokens, n - token);
        Floats scratch = pool.take();
        scratch.grow(kAttendTokens * group * stride);
        int64_t at = token * width + head * group * dim;
        t->attend({q.data() + at, out.data() + at, cache.k(head), cache.v(head), width, first + token + 1, tokens, (int)group, (int)dim,
                   (float)scale, scratch.data(), stride});
        pool.give(std::move(scratch));
    });
}

void append_cache(KvCache& cache, F2 k, F2 v) {
    int64_t n = k.shape(0), width = cache.kv_heads() * cache.dim();
    require((int64_t)k.shape(1) == width && (int64_t)v.shape(0) == n && (int64_t)v.shape(1) == width, "KvCache.append: k, v [n, kv_heads*dim]");
    cache.append(k.data(), v.data(), n);
}

void read_cache(const KvCache& cache, Out2 k, Out2 v) {
    int64_t width = cache.kv_heads() * cache.dim();
    require((int64_t)k.shape(0) == cache.length() && (int64_t)k.shape(1) == width && (int64_t)v.shape(0) == cache.length() &&
            (int64_t)v.shape(1) == width, "KvCache.read: k, v [length, kv_heads*dim]");
    cache.read(k.data(), v.data());
}

// ---- building blocks, for their tests ----------------------------------------------------------------------------------------
void sincos(Array1<const double> x, Array1<double> s, Array1<double> c) {
    require(s.shape(0) == x.shape(0) && c.shape(0) == x.shape(0), "sincos: one length");
    current()->sincos(x.data(), s.data(), c.data(), x.shape(0));
}

void exp_log(Array1<const double> x, Array1<double> e, Array1<double> l) {
    require(e.shape(0) == x.shape(0) && l.shape(0) == x.shape(0), "exp_log: one length");
    current()->exp_log(x.data(), e.data(), l.data(), x.shape(0));
}

}  // namespace
}  // namespace e0

NB_MODULE(_native, m) {
    using namespace e0;
    m.doc() = "The engine's own kernels: the same bits for every instruction set, thread count and batch width.";
    m.def("isas", [] { return names(false); }, "Instruction sets that are built.");
    m.def("usable_isas", [] { return names(true); }, "Those of them that this processor runs, slowest first.");
    m.def("set_isa", &set_isa, "name"_a, "Chooses the instruction set of all later calls.");
    m.def("isa", [] { return std::string(current()->isa); }, "The instruction set in use.");
    m.def("rmsnorm", &rmsnorm, "x"_a.noconvert(), "w"_a.noconvert(), "y"_a.noconvert(), "eps"_a, "threads"_a = 1);
    m.def("rope_angles", &rope_angles, "first"_a, "inv_freq"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert());
    m.def("rope", &rope, "x"_a.noconvert(), "cos"_a.noconvert(), "sin"_a.noconvert(), "heads"_a, "threads"_a = 1);
    m.def("add", &add, "x"_a.noconvert(), "y"_a.noconvert(), "threads"_a = 1);
    m.def("swiglu", &swiglu, "gate"_a.noconvert(), "up"_a.noconvert(), "h"_a.noconvert(), "threads"_a = 1);
    m.def("weighted_sum", &weighted_sum, "y"_a.noconvert(), "w"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1);
    m.def("route", &route, "logits"_a.noconvert(), "ids"_a.noconvert(), "weights"_a.noconvert(), "threads"_a = 1);
    m.def("top_logprobs", &top_logprobs, "logits"_a.noconvert(), "ids"_a.noconvert(), "logprobs"_a.noconvert(), "threads"_a = 1);
    m.def("attention", &attention, "q"_a.noconvert(), "cache"_a, "out"_a.noconvert(), "heads"_a, "scale"_a, "threads"_a = 1);
    m.def("sincos", &e0::sincos, "x"_a.noconvert(), "sin"_a.noconvert(), "cos"_a.noconvert());
    m.def("exp_log", &exp_log, "x"_a.noconvert(), "exp"_a.noconvert(), "log"_a.noconvert());
    nb::class_<Dense>(m, "Dense", "Float32 weights [experts, M, K], packed; y = serial fma over K.")
        .def(nb::init<Array3<const float>>(), "weights"_a.noconvert())
        .def("run", &Dense::run, "x"_a.noconvert(), "experts"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1)
        .def("run_all", &Dense::run_all, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a = 1)
        .def_prop_ro("experts", &Dense::experts)
        .def_prop_ro("rows", &Dense::rows)
        .def_prop_ro("cols", &Dense::cols);
    nb::class_<KvCache>(m, "KvCache", "Keys and values of one layer.")
        .def(nb::init<int64_t, int64_t>(), "kv_heads"_a, "dim"_a)
        .def("append", &append_cache, "k"_a.noconvert(), "v"_a.noconvert())
        .def("truncate", &KvCache::truncate, "length"_a)
        .def("read", &read_cache, "k"_a.noconvert(), "v"_a.noconvert())
        .def_prop_ro("length", &KvCache::length)
        .def_prop_ro("capacity", &KvCache::capacity);
}
