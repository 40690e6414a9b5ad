// Comparison of two tensors of one dtype in one pass over memory: what is counted, and how parts are put together.
//
// The tensors are cut into segments of a fixed number of elements.  A segment gives one Partial; partials are merged in order of
// their position.  Neither threads nor instruction sets nor the sizes of the pieces fed in can change a bit of the result.
#pragma once
#include <cstdint>

namespace e0 {

enum class Dtype { f32, f16, bf16, f64, i8, i32 };

inline int64_t dtype_bytes(Dtype t) {
    switch (t) {
        case Dtype::f64: return 8;
        case Dtype::f32: case Dtype::i32: return 4;
        case Dtype::f16: case Dtype::bf16: return 2;
        default: return 1;
    }
}

struct Options {
    Dtype dtype = Dtype::f32;
    bool nan_equal = true;        // NaNs in the same place are equal whatever their payload
    bool ulp_histogram = false;
};

constexpr int64_t kSegment = 131072;          // elements of one Partial
constexpr int kLanes = 16;                    // f64 sums run in 16 lanes, element i in lane i mod 16, joined lane 0 first
constexpr int kUlpBuckets = 65;               // bucket 0: distance 0; bucket k: 2^(k-1) <= distance < 2^k
constexpr int kCodeBuckets = 511;             // a - b + 255

enum Sum { sum_a, sum_b, sum_aa, sum_bb, sum_ab, sum_dd, kSums };

template <class V>
struct Peak {                                 // a maximum and the first place where it stands; place -1 while nothing exceeds 0
    V value = 0;
    int64_t place = -1;
    void offer(V v, int64_t at) { if (v > value) { value = v; place = at; } }
};

struct Partial {
    int64_t n = 0, equal = 0, finite = 0;                             // finite: pairs with both sides finite
    int64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;
    int64_t nan_both = 0, unlike = 0;                                 // unlike: not finite on a side at least, and not the same on both
    int64_t first_unequal = -1, first_unlike = -1;
    double sums[kSums] = {};                                          // over finite pairs
    Peak<double> abs, rel;                                            // |a-b|, |a-b| / max(|a|, |b|), over finite pairs
    Peak<uint64_t> ulp;                                               // steps between neighbouring values; -0 and +0 are one value
    int64_t ulp_histogram[kUlpBuckets] = {};
    int64_t code_histogram[kCodeBuckets] = {};                        // i8 only

    void merge(const Partial& o) {                                    // o lies after this one
        n += o.n; equal += o.equal; finite += o.finite;
        nan_a += o.nan_a; nan_b += o.nan_b; inf_a += o.inf_a; inf_b += o.inf_b;
        nan_both += o.nan_both; unlike += o.unlike;
        if (first_unequal < 0) first_unequal = o.first_unequal;
        if (first_unlike < 0) first_unlike = o.first_unlike;
        for (int i = 0; i < kSums; ++i) sums[i] += o.sums[i];
        abs.offer(o.abs.value, o.abs.place);
        rel.offer(o.rel.value, o.rel.place);
        ulp.offer(o.ulp.value, o.ulp.place);
        for (int i = 0; i < kUlpBuckets; ++i) ulp_histogram[i] += o.ulp_histogram[i];
        for (int i = 0; i < kCodeBuckets; ++i) code_histogram[i] += o.code_histogram[i];
    }
};

// One segment of at most kSegment elements whose first one has the index `start` in the whole tensor; one per instruction set.
using SegmentFn = void (*)(const void* a, const void* b, int64_t n, int64_t start, const Options&, Partial&);
namespace baseline { void compare_segment(const void*, const void*, int64_t, int64_t, const Options&, Partial&); }
namespace avx2 { void compare_segment(const void*, const void*, int64_t, int64_t, const Options&, Partial&); }
namespace avx512 { void compare_segment(const void*, const void*, int64_t, int64_t, const Options&, Partial&); }

}  // namespace e0
