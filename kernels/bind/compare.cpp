// Python module edge0verify.dump._onepass: the one-pass comparison over raw bytes; dump/onepass.py gives it its types.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "compare/accumulator.h"

namespace nb = nanobind;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

namespace {

e0::Dtype dtype_of(const std::string& name) {
    static const std::pair<const char*, e0::Dtype> table[] = {{"f32", e0::Dtype::f32}, {"f16", e0::Dtype::f16}, {"bf16", e0::Dtype::bf16},
                                                              {"f64", e0::Dtype::f64}, {"i8", e0::Dtype::i8},   {"i32", e0::Dtype::i32}};
    for (auto& [key, value] : table)
        if (name == key) return value;
    throw nb::value_error(("dtype: expected f32, f16, bf16, f64, i8 or i32, found " + name).c_str());
}

e0::SegmentFn segment_of(const std::string& isa) {
    e0::SegmentFn best = nullptr;
    for (auto& entry : e0::isas())
        if (entry.usable && (isa.empty() || isa == entry.name)) best = entry.run;
    if (!best) throw nb::value_error(("instruction set not built or not usable here: " + isa).c_str());
    return best;
}

nb::object place(int64_t at) { return at < 0 ? nb::none() : nb::object(nb::int_(at)); }

template <class V> nb::tuple peak(const e0::Peak<V>& p) { return nb::make_tuple(p.value, place(p.place)); }

nb::dict as_dict(const e0::Partial& p, const e0::Options& opt) {
    nb::dict d;
    d["n"] = p.n; d["equal"] = p.equal; d["finite"] = p.finite;
    d["nan_a"] = p.nan_a; d["nan_b"] = p.nan_b; d["inf_a"] = p.inf_a; d["inf_b"] = p.inf_b;
    d["nan_both"] = p.nan_both; d["unlike"] = p.unlike;
    d["first_unequal"] = place(p.first_unequal); d["first_unlike"] = place(p.first_unlike);
    const char* names[] = {"sum_a", "sum_b", "sum_aa", "sum_bb", "sum_ab", "sum_dd"};
    for (int i = 0; i < e0::kSums; ++i) d[names[i]] = p.sums[i];
    d["max_abs"] = peak(p.abs); d["max_rel"] = peak(p.rel); d["max_ulp"] = peak(p.ulp);
    if (opt.ulp_histogram) d["ulp_histogram"] = std::vector<int64_t>(p.ulp_histogram, p.ulp_histogram + e0::kUlpBuckets);
    if (opt.dtype == e0::Dtype::i8) d["code_histogram"] = std::vector<int64_t>(p.code_histogram, p.code_histogram + e0::kCodeBuckets);
    return d;
}

}  // namespace

NB_MODULE(_onepass, m) {
    m.def("isas", [] {
        std::vector<std::string> names;
        for (auto& entry : e0::isas()) names.push_back(entry.name);
        return names;
    }, "Instruction sets that were built, slowest first.");
    m.def("usable_isas", [] {
        std::vector<std::string> names;
        for (auto& entry : e0::isas())
            if (entry.usable) names.push_back(entry.name);
        return names;
    }, "Those of them that this CPU runs.");
    m.attr("SEGMENT") = e0::kSegment;

    nb::class_<e0::Accumulator>(m, "Accumulator", "Running comparison of two tensors of one dtype.")
        .def("__init__", [](e0::Accumulator* self, const std::string& dtype, bool nan_equal, bool ulp_histogram, int threads, const std::string& isa) {
            e0::Options opt;
            opt.dtype = dtype_of(dtype);
            opt.nan_equal = nan_equal;
            opt.ulp_histogram = ulp_histogram && opt.dtype != e0::Dtype::i8;
            new (self) e0::Accumulator(opt, segment_of(isa), threads);
        }, nb::arg("dtype"), nb::kw_only(), nb::arg("nan_equal"), nb::arg("ulp_histogram"), nb::arg("threads"), nb::arg("isa"))
        .def("update", [](e0::Accumulator& self, Bytes a, Bytes b) {
            if (a.size() != b.size()) throw nb::value_error("unlike sizes of a and b");
            if (a.size() % self.element_bytes()) throw nb::value_error("size is no multiple of the element");
            auto pa = (const char*)a.data(), pb = (const char*)b.data();
            int64_t n = (int64_t)a.size() / self.element_bytes();
            nb::gil_scoped_release release;
            self.update(pa, pb, n);
        }, nb::arg("a"), nb::arg("b"), "Feeds the next bytes of both; the GIL is released.")
        .def("update_files", [](e0::Accumulator& self, int fd_a, std::vector<int64_t> first_a, std::vector<int64_t> offset_a,
                                int fd_b, std::vector<int64_t> first_b, std::vector<int64_t> offset_b) {
            e0::Extents a{fd_a, std::move(first_a), std::move(offset_a)}, b{fd_b, std::move(first_b), std::move(offset_b)};
            for (auto* side : {&a, &b})
                if (side->first.size() != side->offset.size() + 1 || side->first[0] != 0 || !std::is_sorted(side->first.begin(), side->first.end()))
                    throw nb::value_error("extents: expected ascending bytes from 0 and one offset each");
            if (a.first.back() != b.first.back() || a.first.back() % self.element_bytes()) throw nb::value_error("unlike sizes of a and b");
            int64_t n = a.first.back() / self.element_bytes();
            nb::gil_scoped_release release;
            self.update_files(a, b, n);
        }, nb::arg("fd_a"), nb::arg("first_a"), nb::arg("offset_a"), nb::arg("fd_b"), nb::arg("first_b"), nb::arg("offset_b"),
             "Two whole datasets from open files: first bytes of their extents (and the end), and where these lie.")
        .def("result", [](const e0::Accumulator& self) { return as_dict(self.result(), self.options()); }, "What was counted so far, as a dict.");
}
