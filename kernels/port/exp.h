// E(x): the project's own float32 exponential.  Within 1 ulp of e^x over the whole range, subnormal results included; overflow gives
// +inf, -inf gives +0, NaN gives NaN.  The polynomial is written once, over the few operations that a set of lanes `O` offers, so a
// GPU thread, a scalar and sixteen lanes give the same bits: every step is one IEEE operation, fma where fma is written.
//
// Form: n = nearest integer to x*log2(e); r = x - n*ln2 in two steps (n times the short upper part of ln2 is exact, and so is its
// difference from x), |r| < 0.3466; e^r = (1 + r) + r^2*q(r), the rounding error of 1 + r carried along, with q the degree-5 fit of
// (e^r - 1 - r)/r^2 (Chebyshev nodes, weight r^2/e^r, error 2^-29); 2^n is applied as two factors, so that a subnormal result is
// rounded once, by the last multiplication.
//
// A GPU build defines E0_EXP_FN to its own qualifiers and hands in its own `O`.
#pragma once

#ifndef E0_EXP_FN
#define E0_EXP_FN static inline __attribute__((always_inline))
#endif

#ifdef E0_ISA
namespace e0 {
namespace E0_ISA {
#endif

// O: F, I (lanes of float and int32); set(float); add, sub, mul, fma; at_most(x, c) = x > c ? c : x and at_least(x, c) = x < c ? c : x
// (both keep a NaN x); bits(F) -> I; pow2(I k) = 2^k for -126 <= k <= 127; isub(I, I), iset(int), half(I) = arithmetic shift by one.
template <class O>
E0_EXP_FN typename O::F exp_form(typename O::F x) {
    typedef typename O::F F;
    typedef typename O::I I;
    const float kMagic = 12582912.0f;           // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    x = O::at_most(x, 89.0f);                   // e^89 overflows already
    x = O::at_least(x, -104.0f);                // e^-104 is under half of the smallest subnormal
    F t = O::fma(x, O::set(0x1.715476p+0f), O::set(kMagic));
    F n = O::sub(t, O::set(kMagic));
    F r = O::fma(n, O::set(-0x1.62e400p-1f), x);
    r = O::fma(n, O::set(-0x1.7f7d1cp-20f), r);
    F q = O::set(0x1.9ff724p-13f);
    q = O::fma(q, r, O::set(0x1.6dade4p-10f));
    q = O::fma(q, r, O::set(0x1.1111d6p-7f));
    q = O::fma(q, r, O::set(0x1.555462p-5f));
    q = O::fma(q, r, O::set(0x1.555554p-3f));
    q = O::fma(q, r, O::set(0.5f));
    F one = O::set(1.0f);
    F s = O::add(one, r);
    F tail = O::sub(r, O::sub(s, one));               // what s lost of r
    F p = O::add(s, O::fma(O::mul(r, r), q, tail));
    I k = O::isub(O::bits(t), O::iset(0x4b400000));   // the bits of kMagic
    I h = O::half(k);
    return O::mul(O::mul(p, O::pow2(h)), O::pow2(O::isub(k, h)));
}

#ifdef E0_ISA
struct ScalarOps {
    typedef float F;
    typedef int32_t I;
    static F set(float x) { return x; }
    static I iset(int32_t x) { return x; }
    static F add(F a, F b) { return a + b; }
    static F sub(F a, F b) { return a - b; }
    static F mul(F a, F b) { return a * b; }
    static F fma(F a, F b, F c) { return fma1(a, b, c); }
    static F at_most(F x, float c) { return x > c ? c : x; }
    static F at_least(F x, float c) { return x < c ? c : x; }
    static I bits(F x) { I i; std::memcpy(&i, &x, 4); return i; }
    static I isub(I a, I b) { return (I)((uint32_t)a - (uint32_t)b); }
    static I half(I a) { return a >> 1; }
    static F pow2(I k) { uint32_t u = (uint32_t)(k + 127) << 23; F f; std::memcpy(&f, &u, 4); return f; }
};
struct LaneOps {
    typedef vf F;
    typedef vi I;
    static F set(float x) { return vset(x); }
    static I iset(int32_t x) { return viset(x); }
    static F add(F a, F b) { return vadd(a, b); }
    static F sub(F a, F b) { return vsub(a, b); }
    static F mul(F a, F b) { return vmul(a, b); }
    static F fma(F a, F b, F c) { return vfma(a, b, c); }
    static F at_most(F x, float c) { return vmin(vset(c), x); }
    static F at_least(F x, float c) { return vmax(vset(c), x); }
    static I bits(F x) { return vas_i(x); }
    static I isub(I a, I b) { return visub(a, b); }
    static I half(I a) { return vsra<1>(a); }
    static F pow2(I k) { return vas_f(vsll<23>(viadd(k, viset(127)))); }
};

// One value, and sixteen lanes: the same bits.
E0_INLINE float exp1(float x) { return exp_form<ScalarOps>(x); }
E0_INLINE vf vexp(vf x) { return exp_form<LaneOps>(x); }

}  // namespace E0_ISA
}  // namespace e0
#endif
