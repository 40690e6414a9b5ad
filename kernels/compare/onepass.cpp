// One segment of the comparison, built once per instruction set.
//
// A segment is worked through in pieces that stay in the first-level cache, so several short loops over a piece cost one pass over
// memory.  A piece with anything not finite is copied with those pairs set to (0, 0), which adds nothing to any sum or maximum; the
// fast loops therefore never see a NaN and need no masks.
#include "onepass.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#if defined(__SSE2__)
#if defined(__GNUC__) && !defined(__clang__)            // the compiler's own header leaves a value undefined on purpose
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

namespace e0 {
namespace E0_ISA {
namespace {

constexpr int kPiece = 1024;

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kWidth = kBytes / 8, kVectors = kLanes / kWidth;
typedef double vd __attribute__((vector_size(kBytes)));
typedef int64_t vl __attribute__((vector_size(kBytes)));
#if !defined(__AVX512F__)
typedef float half_f __attribute__((vector_size(kBytes / 2)));
typedef int32_t half_i __attribute__((vector_size(kBytes / 2)));
#endif

inline vd load(const double* p) { vd v; std::memcpy(&v, p, sizeof v); return v; }
#if defined(__AVX512F__)                               // compilers split the portable form in halves
inline vd load(const float* p) { return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)); }
inline vd load(const int32_t* p) { return (vd)_mm512_cvtepi32_pd(_mm256_loadu_si256((const __m256i*)p)); }
#else
inline vd load(const float* p) { half_f v; std::memcpy(&v, p, sizeof v); return __builtin_convertvector(v, vd); }
inline vd load(const int32_t* p) { half_i v; std::memcpy(&v, p, sizeof v); return __builtin_convertvector(v, vd); }
#endif
inline vd magnitude(vd x) { return (vd)((vl)x & INT64_MAX); }
#if defined(__AVX512F__)                               // compilers do not make one instruction of the plain form; each is x > y ? x : y
inline vd larger(vd x, vd y) { return (vd)_mm512_max_pd((__m512d)x, (__m512d)y); }
#elif defined(__AVX2__)
inline vd larger(vd x, vd y) { return (vd)_mm256_max_pd((__m256d)x, (__m256d)y); }
#elif defined(__SSE2__)
inline vd larger(vd x, vd y) { return (vd)_mm_max_pd((__m128d)x, (__m128d)y); }
#else
inline vd larger(vd x, vd y) { return x > y ? x : y; }
#endif

constexpr double kTiny = 4.9406564584124654e-324;      // keeps 0/0 out of the relative difference
inline double relative(double a, double b) {
    double m = std::fabs(a) > std::fabs(b) ? std::fabs(a) : std::fabs(b);
    return std::fabs(a - b) / (m > kTiny ? m : kTiny);
}

// f64 sums and the largest |a-b| of a clean piece whose length is a multiple of kLanes.  Division is slow, so what is returned of the
// relative differences is only whether one may exceed `beaten`; the product falls short of it by more than it can be rounded up.
template <class T>
bool float_metrics(const T* a, const T* b, int n, double (*lanes)[kLanes], double& peak_abs, double beaten) {
    vd s[kSums][kVectors], mabs[kVectors] = {}, over[kVectors] = {};
    std::memcpy(s, lanes, sizeof s);
    vd bar = vd{} + beaten * (1 - 0x1p-50);
    for (int i = 0; i < n; i += kLanes) {
        for (int v = 0; v < kVectors; ++v) {
            vd x = load(a + i + v * kWidth), y = load(b + i + v * kWidth), d = x - y, e = magnitude(d);
            s[sum_a][v] += x;
            s[sum_b][v] += y;
            s[sum_aa][v] += x * x;
            s[sum_bb][v] += y * y;
            s[sum_ab][v] += x * y;
            s[sum_dd][v] += d * d;
            mabs[v] = larger(e, mabs[v]);
            over[v] = larger(e - bar * larger(magnitude(x), magnitude(y)), over[v]);
        }
    }
    std::memcpy(lanes, s, sizeof s);
    peak_abs = 0;
    double above = 0;
    for (int v = 0; v < kVectors; ++v)
        for (int l = 0; l < kWidth; ++l) {
            if (mabs[v][l] > peak_abs) peak_abs = mabs[v][l];
            if (over[v][l] > above) above = over[v][l];
        }
    return above > 0 || sizeof(T) == 8;      // among f64 subnormals the product itself may round up to the difference
}

// ---- what each dtype is made of --------------------------------------------------------------------------------------------
// Bits: an element as it lies in memory.  Value: what the f64 sums read.  Order: an integer that counts representable values, so that
// a difference of two is the distance in ulp (integers: the plain difference).
template <class B, class V, int kMantissa>
struct Float {
    using Bits = B; using Value = V; using Order = B; using Distance = typename std::conditional<sizeof(B) == 8, uint64_t, uint32_t>::type;
    static constexpr bool has_nan = true;
    static constexpr B low = (B)((B)1 << (sizeof(B) * 8 - 1));            // the sign bit, most negative value of B
    static constexpr B exponent_mask = (B)(~low & ~(((B)1 << kMantissa) - 1));
    static bool finite(B b) { return (B)(b & ~low) < exponent_mask; }
    static bool nan(B b) { return (B)(b & ~low) > exponent_mask; }
    static B order(B b) { return b < 0 ? (B)(low - b) : b; }
};
using F32 = Float<int32_t, float, 23>;
using F64 = Float<int64_t, double, 52>;
using F16 = Float<int16_t, float, 10>;
using BF16 = Float<int16_t, float, 7>;
struct I32 {
    using Bits = int32_t; using Value = int32_t; using Order = int32_t; using Distance = uint32_t;
    static constexpr bool has_nan = false;
    static bool finite(int32_t) { return true; }
    static bool nan(int32_t) { return false; }
    static int32_t order(int32_t b) { return b; }
};

// Values of a piece: in place where memory already holds them, else decoded into scratch.
template <class D> struct Decode {
    static const typename D::Value* run(const typename D::Bits* p, int, void*) { return reinterpret_cast<const typename D::Value*>(p); }
};
template <> struct Decode<BF16> {
    static const float* run(const int16_t* p, int n, void* scratch) {
        uint32_t* out = (uint32_t*)scratch;
        for (int i = 0; i < n; ++i) out[i] = (uint32_t)(uint16_t)p[i] << 16;
        return (const float*)scratch;
    }
};
template <> struct Decode<F16> {      // finite values: exponent and mantissa moved into place, then scaled by 2^112, exactly
    static const float* run(const int16_t* p, int n, void* scratch) {
        float* out = (float*)scratch;
        for (int i = 0; i < n; ++i) {
            uint32_t u = (uint32_t)(p[i] & 0x7fff) << 13;
            float f; std::memcpy(&f, &u, 4);
            f *= 5192296858534827628530496329220096.0f;
            std::memcpy(&u, &f, 4);
            u |= (uint32_t)(p[i] & 0x8000) << 16;
            std::memcpy(out + i, &u, 4);
        }
        return out;
    }
};

template <class D> bool all_finite(const typename D::Bits* a, const typename D::Bits* b, int n) {
    typename D::Bits bad = 0;
    for (int i = 0; i < n; ++i) bad |= (typename D::Bits)(!D::finite(a[i]) | !D::finite(b[i]));
    return !bad;
}

// Cheap first question: an f32 that is not finite leaves a sum of squares that is not, and no finite f32 can; a huge f64 may seem to.
template <class D> bool may_hold_nonfinite(const double (*lanes)[kLanes]) {
    if (sizeof(typename D::Bits) == 2) return true;
    double spread = 0;
    for (int l = 0; l < kLanes; ++l) spread += (lanes[sum_aa][l] - lanes[sum_aa][l]) + (lanes[sum_bb][l] - lanes[sum_bb][l]);
    return spread != 0;
}

// Counts what is not finite and copies the piece with those pairs set to zero.
template <class D>
int64_t clean(const typename D::Bits* a, const typename D::Bits* b, int n, int64_t start, bool nan_equal,
              typename D::Bits* ca, typename D::Bits* cb, Partial& p) {
    int64_t equal_nans = 0;
    for (int i = 0; i < n; ++i) {
        bool fa = D::finite(a[i]), fb = D::finite(b[i]), na = D::nan(a[i]), nb = D::nan(b[i]);
        p.nan_a += na; p.nan_b += nb;
        p.inf_a += !fa && !na; p.inf_b += !fb && !nb;
        p.nan_both += na && nb;
        if (!(fa && fb) && !(na && nb) && a[i] != b[i]) {
            ++p.unlike;
            if (p.first_unlike < 0) p.first_unlike = start + i;
        }
        if (nan_equal && na && nb && a[i] != b[i]) ++equal_nans;
        bool keep = fa && fb;
        p.finite -= !keep;
        ca[i] = keep ? a[i] : 0;
        cb[i] = keep ? b[i] : 0;
    }
    return equal_nans;
}

// Bits needed for a distance.  32 bits: from the exponent of a float, which every instruction set converts in vectors; of two leading
// ones the second is dropped first, so that rounding cannot reach the next power of two.
inline int bit_width(uint32_t d) {
    float f = (float)(int32_t)((d & ~(d >> 1)) >> 1) + 0.5f;
    int32_t u; std::memcpy(&u, &f, 4);
    return (u >> 23) - 126 + (d != 0);
}
inline int bit_width(uint64_t d) { return d ? 64 - __builtin_clzll(d) : 0; }

// Equal bits and the largest distance of a piece, whatever its bits mean; `distance` is filled when Store.
template <class D, bool Store>
typename D::Distance count_bits(const typename D::Bits* a, const typename D::Bits* b, int n, int& equal, typename D::Distance* distance) {
    typename D::Distance top = 0;
    int same = 0;
    for (int i = 0; i < n; ++i) {
        auto x = D::order(a[i]), y = D::order(b[i]);
        using Distance = typename D::Distance;
        Distance d = x > y ? (Distance)x - (Distance)y : (Distance)y - (Distance)x;
        if (Store) distance[i] = d;
        top = d > top ? d : top;
        same += a[i] == b[i];
    }
    equal = same;
    return top;
}

template <class D>
void segment(const typename D::Bits* a, const typename D::Bits* b, int64_t n, int64_t start, const Options& opt, Partial& p) {
    using Bits = typename D::Bits; using Distance = typename D::Distance;
    alignas(64) Bits ca[kPiece], cb[kPiece];
    alignas(64) float sa[kPiece], sb[kPiece];
    alignas(64) Distance distance[kPiece];
    alignas(64) double lanes[kSums][kLanes] = {}, before[kSums][kLanes];
    constexpr int kTables = 8;                        // neighbours often share a bucket: separate tables keep increments independent
    uint32_t tables[kTables][kUlpBuckets] = {};
    uint8_t bucket[kPiece];
    p.n += n;
    p.finite += n;
    for (int64_t at = 0; at < n; at += kPiece) {
        int m = (int)(n - at < kPiece ? n - at : kPiece), padded = (m + kLanes - 1) / kLanes * kLanes;
        const Bits *oa = a + at, *ob = b + at, *pa = oa, *pb = ob;      // o: as given; p: as worked on
        if (padded != m) {
            std::memcpy(ca, oa, m * sizeof(Bits));
            std::memcpy(cb, ob, m * sizeof(Bits));
            for (int i = m; i < padded; ++i) ca[i] = cb[i] = 0;
            pa = ca, pb = cb;
        }
        int64_t skipped = padded - m, finite = p.finite;
        std::memcpy(before, lanes, sizeof lanes);
        auto va = Decode<D>::run(pa, padded, sa), vb = Decode<D>::run(pb, padded, sb);
        double peak_abs;
        bool may_rise = float_metrics(va, vb, padded, lanes, peak_abs, p.rel.value), cleaned = false;
        int equal;
        Distance top = opt.ulp_histogram ? count_bits<D, true>(pa, pb, padded, equal, distance)
                                         : count_bits<D, false>(pa, pb, padded, equal, distance);
        equal -= skipped;
        if (D::has_nan && may_hold_nonfinite<D>(lanes) && !all_finite<D>(oa, ob, m)) {
            equal += (int)clean<D>(oa, ob, m, start + at, opt.nan_equal, ca, cb, p);
            for (int i = m; i < padded; ++i) ca[i] = cb[i] = 0;
            pa = ca, pb = cb;
            std::memcpy(lanes, before, sizeof lanes);
            va = Decode<D>::run(pa, padded, sa), vb = Decode<D>::run(pb, padded, sb);
            may_rise = float_metrics(va, vb, padded, lanes, peak_abs, p.rel.value);
            int ignored;
            top = count_bits<D, true>(pa, pb, padded, ignored, distance);
            skipped += finite - p.finite;
            cleaned = true;
        }
        p.equal += equal;
        if (equal != m && p.first_unequal < 0)
            for (int i = 0; i < m; ++i)
                if (oa[i] != ob[i] && !(opt.nan_equal && D::nan(oa[i]) && D::nan(ob[i]))) { p.first_unequal = start + at + i; break; }
        if (top > p.ulp.value) {
            int ignored, i = 0;
            if (!cleaned && !opt.ulp_histogram) count_bits<D, true>(pa, pb, padded, ignored, distance);
            while (distance[i] != top) ++i;
            p.ulp.offer(top, start + at + i);
        }
        if (opt.ulp_histogram) {
            for (int i = 0; i < padded; ++i) bucket[i] = (uint8_t)bit_width(distance[i]);
            for (int i = 0; i < padded; i += kTables)
                for (int t = 0; t < kTables; ++t) ++tables[t][bucket[i + t]];
            p.ulp_histogram[0] -= skipped;                             // padding and pairs that are not finite
        }
        if (peak_abs > p.abs.value) {
            int i = 0;
            while (std::fabs((double)va[i] - (double)vb[i]) != peak_abs) ++i;
            p.abs.offer(peak_abs, start + at + i);
        }
        if (may_rise)
            for (int i = 0; i < m; ++i) p.rel.offer(relative((double)va[i], (double)vb[i]), start + at + i);
    }
    for (int s = 0; s < kSums; ++s) {
        double t = 0;
        for (int l = 0; l < kLanes; ++l) t += lanes[s][l];
        p.sums[s] += t;
    }
    for (auto& table : tables)
        for (int k = 0; k < kUlpBuckets; ++k) p.ulp_histogram[k] += table[k];
}

// Codes: everything follows exactly from integer sums and the histogram of differences.
void code_segment(const int8_t* a, const int8_t* b, int64_t n, int64_t start, Partial& p) {
    constexpr int kTables = 4;
    uint32_t tables[kTables][kCodeBuckets + 1] = {};
    int64_t total[kSums] = {};
    p.n += n;
    p.finite += n;
    for (int64_t at = 0; at < n; at += kPiece) {
        int m = (int)(n - at < kPiece ? n - at : kPiece);
        const int8_t *pa = a + at, *pb = b + at;
        int s[kSums] = {}, top = 0;
        for (int i = 0; i < m; ++i) {
            int x = pa[i], y = pb[i], d = x - y;
            s[sum_a] += x; s[sum_b] += y; s[sum_aa] += x * x; s[sum_bb] += y * y; s[sum_ab] += x * y;
            int e = d < 0 ? -d : d;
            top = e > top ? e : top;
        }
        for (int k = 0; k < sum_dd; ++k) total[k] += s[k];
        if (!top) {
            tables[0][255] += m;
            continue;
        }
        total[sum_dd] += (int64_t)s[sum_aa] + s[sum_bb] - 2 * (int64_t)s[sum_ab];
        for (int i = 0; i < m; ++i) ++tables[i % kTables][pa[i] - pb[i] + 255];
        if (p.first_unequal < 0) {
            int i = 0;
            while (pa[i] == pb[i]) ++i;
            p.first_unequal = start + at + i;
        }
        if (top > p.abs.value) {
            int i = 0;
            while (std::abs(pa[i] - pb[i]) != top) ++i;
            p.abs.offer(top, start + at + i);
            p.ulp.offer((uint64_t)top, start + at + i);
        }
        double peak = p.rel.value;
        int place = -1;
        for (int i = 0; i < m; ++i) {
            int x = std::abs((int)pa[i]), y = std::abs((int)pb[i]), d = std::abs(pa[i] - pb[i]);
            if (d && d > peak * (x > y ? x : y)) {                     // the product only sorts out; the quotient decides
                double r = relative(pa[i], pb[i]);
                if (r > peak) { peak = r; place = i; }
            }
        }
        if (place >= 0) p.rel.offer(peak, start + at + place);
    }
    for (auto& table : tables)
        for (int k = 0; k < kCodeBuckets; ++k) p.code_histogram[k] += table[k];
    p.equal += p.code_histogram[255];
    for (int k = 0; k < kSums; ++k) p.sums[k] += (double)total[k];
}

}  // namespace

void compare_segment(const void* a, const void* b, int64_t n, int64_t start, const Options& opt, Partial& p) {
    switch (opt.dtype) {
        case Dtype::f32: return segment<F32>((const int32_t*)a, (const int32_t*)b, n, start, opt, p);
        case Dtype::f64: return segment<F64>((const int64_t*)a, (const int64_t*)b, n, start, opt, p);
        case Dtype::f16: return segment<F16>((const int16_t*)a, (const int16_t*)b, n, start, opt, p);
        case Dtype::bf16: return segment<BF16>((const int16_t*)a, (const int16_t*)b, n, start, opt, p);
        case Dtype::i32: return segment<I32>((const int32_t*)a, (const int32_t*)b, n, start, opt, p);
        case Dtype::i8: return code_segment((const int8_t*)a, (const int8_t*)b, n, start, p);
    }
}

}  // namespace E0_ISA
}  // namespace e0
