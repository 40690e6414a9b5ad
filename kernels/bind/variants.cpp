// Python bindings of the compiled variants: checks every argument against the contract, releases the GIL, calls the table's entry.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>

#include "bind/check.h"
#include "cpu/faults.h"
#include "cpu/pack.h"
#include "cpu/types.h"

namespace nb = nanobind;

namespace e0 {

#ifdef E0_HAVE_baseline
namespace baseline { const KernelTable& table(); }
#endif
#ifdef E0_HAVE_avx2
namespace avx2 { const KernelTable& table(); }
#endif
#ifdef E0_HAVE_avx512
namespace avx512 { const KernelTable& table(); }
#endif
#ifdef E0_HAVE_phase
const KernelTable& phase_table();      // portable/table.cpp
#endif

struct EntryInfo { const char *symbol, *key, *kind; int format, variant; };
static const EntryInfo kEntryInfo[kEntries] = {
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) \
    {"e0_" #stage "_" #variant "_" #format, key, #kind, FORMAT, VARIANT},
#include "cpu/entries.h"
#undef E0_ENTRY
};
static const char* const kQuantiserNames[kQuantisers] = {"ggml-ref", "mmvq", "mmq", "ggml-x86"};

#if E0_MUTANTS
#define E0_FAULT_NAME(id, name) name,
static const char* const kFaultNames[kFaults] = {"", E0_FAULTS(E0_FAULT_NAME)};
#endif

// every object that was built, slowest first, and whether this processor runs it
struct Built { const KernelTable* table; bool usable; };
static std::vector<Built> built() {
    std::vector<Built> v;
#ifdef E0_HAVE_phase
    v.push_back({&phase_table(), true});
#endif
    v.push_back({&baseline::table(), true});
#ifdef E0_HAVE_avx2
    v.push_back({&avx2::table(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")});
#endif
#ifdef E0_HAVE_avx512
    v.push_back({&avx512::table(), __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                                       __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("f16c") &&
                                       __builtin_cpu_supports("fma")});
#endif
    return v;
}
static const std::vector<Built>& objects() {
    static const std::vector<Built> v = built();
    return v;
}
static const KernelTable* best() {
    const KernelTable* t = nullptr;
    for (const Built& b : objects())
        if (b.usable) t = b.table;
    return t;
}
static const KernelTable* current = nullptr;

static const KernelTable& pick(const std::optional<std::string>& isa) {
    if (!isa) return *(current ? current : (current = best()));
    std::string names;
    for (const Built& b : objects()) {
        if (*isa == b.table->isa) {
            check(b.usable, "instruction set " + *isa + ": this processor does not run it");
            return *b.table;
        }
        names += std::string(names.empty() ? "" : ", ") + b.table->isa;
    }
    throw nb::value_error(("instruction set: expected one of " + names + ", found " + *isa).c_str());
}

static int find_entry(const std::string& symbol, const char* kind) {
    for (int i = 0; i < kEntries; ++i)
        if (symbol == kEntryInfo[i].symbol) {
            check(!std::strcmp(kind, kEntryInfo[i].kind), symbol + ": not an entry of kind " + kind);
            return i;
        }
    throw nb::value_error(("no compiled kernel named " + symbol).c_str());
}
static void check_format(const Packed& w, int entry, const char* what) {
    check(w.view().format == kEntryInfo[entry].format, std::string(what) + ": " + kEntryInfo[entry].symbol + " reads " +
          kFormatInfo[kEntryInfo[entry].format].name + ", found " + kFormatInfo[w.view().format].name);
}
static int find_quantiser(const std::string& name) {
    for (int i = 0; i < kQuantisers; ++i)
        if (name == kQuantiserNames[i]) return i;
    throw nb::value_error(("quantiser: expected one of ggml-ref, mmvq, mmq, ggml-x86, found " + name).c_str());
}

static Packed* make_weights(const std::string& name, In raw) {
    for (int f = 0; f < kFormats; ++f) {
        if (name != kFormatInfo[f].name) continue;
        const FormatInfo& info = kFormatInfo[f];
        check(raw.ndim() == 2 || raw.ndim() == 3, "raw: expected [rows, bytes] or [experts, rows, bytes], found " +
              std::to_string(raw.ndim()) + " dimensions");
        const uint8_t* p = pointer<uint8_t>(raw, "raw");
        const int64_t bytes = (int64_t)raw.shape(raw.ndim() - 1), rows = (int64_t)raw.shape(raw.ndim() - 2);
        const int64_t experts = raw.ndim() == 3 ? (int64_t)raw.shape(0) : 1;
        check(bytes % info.bytes == 0 && bytes > 0, "raw: a " + name + " row is a multiple of " + std::to_string(info.bytes) +
              " bytes, found " + std::to_string(bytes));
        check(rows > 0 && experts > 0, "raw: no rows");
        nb::gil_scoped_release release;
        return new Packed((Format)f, p, experts, rows, bytes / info.bytes * info.values);
    }
    throw nb::value_error(("format: expected one of Q8_0, Q4_0, Q3_K, IQ4_NL, found " + name).c_str());
}

// codes, d and s of [n, k] as the quantiser stores them; s may be None.  Input arrays are never written through the result.
template <class Array>
static Codes codes_of(int quantiser, const Array& codes, const Array& d, const std::optional<Array>& s, int64_t n, int64_t k,
                      const char* what) {
    const std::string w = what;
    Codes c{};
    c.codes = const_cast<int8_t*>(pointer<int8_t>(codes, w + " codes", {n, k}));
    if (quantiser == Q_MMQ) {
        c.d32 = const_cast<float*>(pointer<float>(d, w + " d", {n, k / 32}));
        check(!s, w + " s: the mmq quantiser stores none");
    } else {
        c.d16 = const_cast<half*>(pointer<half>(d, w + " d", {n, k / 32}));
        if (s) c.s = const_cast<half*>(pointer<half>(*s, w + " s", {n, k / 32}));
    }
    return c;
}

static void run_quantise(const std::string& name, In x, Out codes, Out d, std::optional<Out> s, int threads,
                         std::optional<std::string> isa) {
    const int q = find_quantiser(name);
    check(x.ndim() == 2 && x.shape(1) % 32 == 0, "x: expected [n, K] with K a multiple of 32");
    QuantiseArgs a{};
    a.n = (int64_t)x.shape(0);
    a.k = (int64_t)x.shape(1);
    a.x = pointer<float>(x, "x");
    a.out = codes_of<Out>(q, codes, d, s, a.n, a.k, "output");
    a.threads = threads;
    const KernelTable& t = pick(isa);
    check(t.quantise[q] != nullptr, std::string(t.isa) + " has no quantiser " + name);
    nb::gil_scoped_release release;
    t.quantise[q](a);
}

static void run_rows(const std::string& symbol, const Packed& w, In x, Out codes, Out d, std::optional<Out> s, Out out, int threads,
                     std::optional<std::string> isa) {
    const int e = find_entry(symbol, "rows");
    check_format(w, e, "weights");
    const WeightView& v = w.view();
    check(v.experts == 1, "weights: expected one matrix, found " + std::to_string(v.experts) + " experts");
    check(x.ndim() == 2, "x: expected [n, K]");
    RowsArgs a{};
    a.w = &v;
    a.n = (int64_t)x.shape(0);
    a.x = pointer<float>(x, "x", {a.n, v.k});
    a.op = codes_of<Out>(kEntryInfo[e].variant == MMQ ? Q_MMQ : Q_MMVQ, codes, d, s, a.n, v.k, "operand");
    a.out = pointer<float>(out, "out", {a.n, v.rows});
    a.threads = threads;
    const KernelTable& t = pick(isa);
    check(t.rows[e] != nullptr, std::string(t.isa) + " has no " + symbol);
    nb::gil_scoped_release release;
    t.rows[e](a);
}

static const int32_t* ids_of(const In& ids, int64_t n, int64_t experts, int64_t& k) {
    check(ids.ndim() == 2, "ids: expected [n, k]");
    k = (int64_t)ids.shape(1);
    check(k >= 1 && k <= 64, "ids: expected 1 to 64 experts a token, found " + std::to_string(k));
    const int32_t* p = pointer<int32_t>(ids, "ids", {n, k});
    for (int64_t i = 0; i < n * k; ++i)
        check(p[i] >= 0 && p[i] < experts, "ids: expected 0.." + std::to_string(experts - 1) + ", found " + std::to_string(p[i]));
    return p;
}

static void run_a1(const std::string& symbol, const Packed& gate, const Packed& up, std::optional<In> xl, std::optional<In> codes,
                   std::optional<In> d, In ids, std::optional<Out> gate_out, std::optional<Out> up_out, Out h_codes, Out h_d,
                   std::optional<Out> h_s, int threads, std::optional<std::string> isa) {
    const int e = find_entry(symbol, "a1");
    check_format(gate, e, "gate");
    check_format(up, e, "up");
    const WeightView &g = gate.view(), &u = up.view();
    check(g.rows == u.rows && g.k == u.k && g.experts == u.experts, "gate and up: shapes differ");
    check(g.rows % 32 == 0, "gate: H is stored in blocks of 32, found " + std::to_string(g.rows) + " rows");
    const int q = kEntryInfo[e].variant == MMQ ? Q_MMQ : Q_MMVQ;
    A1Args a{};
    a.gate = &g;
    a.up = &u;
    check(ids.ndim() == 2, "ids: expected [n, k]");
    a.n = (int64_t)ids.shape(0);
    a.ids = ids_of(ids, a.n, g.experts, a.k);
    if (q == Q_MMQ) {
        check(xl.has_value(), "xl: mmq reads the f32 latent rows, found None");
        a.xl = pointer<float>(*xl, "xl", {a.n, g.k});
    } else {
        check(codes && d, "xlq: " + symbol + " reads the quantised latent rows, found None");
        a.xlq = codes_of<In>(Q_MMVQ, *codes, *d, std::nullopt, a.n, g.k, "xlq");
    }
    const int64_t pairs = a.n * a.k;
    if (gate_out) a.gate_out = pointer<float>(*gate_out, "gate_out", {pairs, g.rows});
    if (up_out) a.up_out = pointer<float>(*up_out, "up_out", {pairs, g.rows});
    a.h = codes_of<Out>(q, h_codes, h_d, h_s, pairs, g.rows, "h");
    a.threads = threads;
    const KernelTable& t = pick(isa);
    check(t.a1[e] != nullptr, std::string(t.isa) + " has no " + symbol);
    nb::gil_scoped_release release;
    t.a1[e](a);
}

static void run_a2(const std::string& symbol, const Packed& down, In h_codes, In h_d, In ids, In route_weights, Out y, Out yl,
                   int threads, std::optional<std::string> isa) {
    const int e = find_entry(symbol, "a2");
    check_format(down, e, "down");
    const WeightView& w = down.view();
    A2Args a{};
    a.down = &w;
    check(ids.ndim() == 2, "ids: expected [n, k]");
    a.n = (int64_t)ids.shape(0);
    a.ids = ids_of(ids, a.n, w.experts, a.k);
    a.h = codes_of<In>(kEntryInfo[e].variant == MMQ ? Q_MMQ : Q_MMVQ, h_codes, h_d, std::nullopt, a.n * a.k, w.k, "h");
    a.route_weights = pointer<float>(route_weights, "route_weights", {a.n, a.k});
    a.y = pointer<float>(y, "y", {a.n * a.k, w.rows});
    a.yl = pointer<float>(yl, "yl", {a.n, w.rows});
    a.threads = threads;
    const KernelTable& t = pick(isa);
    check(t.a2[e] != nullptr, std::string(t.isa) + " has no " + symbol);
    nb::gil_scoped_release release;
    t.a2[e](a);
}

static void run_exp(In x, Out out, std::optional<std::string> isa) {
    check(x.ndim() == 1, "x: expected one dimension");
    const int64_t n = (int64_t)x.shape(0);
    const float* p = pointer<float>(x, "x", {n});
    float* o = pointer<float>(out, "out", {n});
    const KernelTable& t = pick(isa);
    check(t.exp != nullptr, std::string(t.isa) + " has no exp");
    nb::gil_scoped_release release;
    t.exp(p, o, n);
}

}  // namespace e0

NB_MODULE(E0_MODULE, m) {
    using namespace e0;
    using nb::arg;
    m.doc() = "Compiled kernels of the stages D, A1, A2 and U, one object per instruction set.";
    nb::class_<Packed>(m, "Weights", "Quantised weight rows, packed once: raw uint8 [rows, row_bytes] or [experts, rows, row_bytes].")
        .def(nb::new_(&make_weights), arg("format"), arg("raw").noconvert())
        .def_prop_ro("fmt", [](const Packed& w) { return kFormatInfo[w.view().format].name; })
        .def_prop_ro("experts", [](const Packed& w) { return w.view().experts; })
        .def_prop_ro("rows", [](const Packed& w) { return w.view().rows; })
        .def_prop_ro("k", [](const Packed& w) { return w.view().k; });
    m.def("isas", [] {
        std::vector<std::string> v;
        for (const Built& b : objects()) v.push_back(b.table->isa);
        return v;
    }, "Objects that were built, slowest first.");
    m.def("usable_isas", [] {
        std::vector<std::string> v;
        for (const Built& b : objects())
            if (b.usable) v.push_back(b.table->isa);
        return v;
    }, "Those that this processor runs.");
    m.def("isa", [] { return std::string(pick(std::nullopt).isa); }, "The object that a call without isa= uses.");
    m.def("set_isa", [](const std::string& name) { current = &pick(name); }, arg("name"));
    m.def("launches", [] {
        std::map<std::string, int64_t> v;
        for (int i = 0; i < kEntries; ++i) v[kEntryInfo[i].key] = launches(i);
        return v;
    }, "Launches of each compiled entry since the last reset, counted inside the entry.");
    m.def("reset_launches", &reset_launches);
    m.def("has", [](const std::string& isa, const std::string& symbol) {
        const KernelTable& t = pick(isa);
        for (int i = 0; i < kEntries; ++i)
            if (symbol == kEntryInfo[i].symbol) return t.rows[i] || t.a1[i] || t.a2[i];
        return false;
    }, arg("isa"), arg("symbol"), "Whether an object holds that entry.");
    m.def("symbols", [] {
        std::map<std::string, std::string> v;
        for (int i = 0; i < kEntries; ++i) v[kEntryInfo[i].symbol] = kEntryInfo[i].key;
        return v;
    }, "Compiled entries: symbol -> key of its launch counter.");
    m.def("quantise", &run_quantise, arg("name"), arg("x").noconvert(), arg("codes").noconvert(), arg("d").noconvert(),
          arg("s").noconvert().none(), arg("threads") = 1, arg("isa") = nb::none(), "Rows f32 [n, K] to blocks of 32.");
    m.def("run_store", &run_quantise, arg("name"), arg("rows").noconvert(), arg("codes").noconvert(), arg("d").noconvert(),
          arg("s").noconvert().none(), arg("threads") = 1, arg("isa") = nb::none(), "A store quantiser: the same code as quantise.");
    m.def("run_rows", &run_rows, arg("symbol"), arg("weights"), arg("x").noconvert(), arg("op_codes").noconvert(),
          arg("op_d").noconvert(), arg("op_s").noconvert().none(), arg("out").noconvert(), arg("threads") = 1,
          arg("isa") = nb::none());
    m.def("run_a1", &run_a1, arg("symbol"), arg("gate"), arg("up"), arg("xl").noconvert().none(), arg("xlq_codes").noconvert().none(),
          arg("xlq_d").noconvert().none(), arg("ids").noconvert(), arg("gate_out").noconvert().none(),
          arg("up_out").noconvert().none(), arg("h_codes").noconvert(), arg("h_d").noconvert(), arg("h_s").noconvert().none(),
          arg("threads") = 1, arg("isa") = nb::none());
    m.def("run_a2", &run_a2, arg("symbol"), arg("down"), arg("h_codes").noconvert(), arg("h_d").noconvert(), arg("ids").noconvert(),
          arg("route_weights").noconvert(), arg("y").noconvert(), arg("yl").noconvert(), arg("threads") = 1, arg("isa") = nb::none());
    m.def("exp_f32", &run_exp, arg("x").noconvert(), arg("out").noconvert(), arg("isa") = nb::none(), "E(x) of the contracts.");
#if E0_MUTANTS
    m.def("faults", [] {
        return std::vector<std::string>(kFaultNames + 1, kFaultNames + kFaults);
    }, "Faults that can be planted.");
    m.def("set_fault", [](std::optional<std::string> name) {
        if (!name) { planted_fault = NO_FAULT; return; }
        for (int i = 1; i < kFaults; ++i)
            if (*name == kFaultNames[i]) { planted_fault = i; return; }
        throw nb::value_error(("no fault named " + *name).c_str());
    }, arg("name").none(), "Plants one fault in every kernel of this module, or none.");
#endif
}
