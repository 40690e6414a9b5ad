// Sine, cosine, exponential and logarithm in double, from the four operations alone: no libm, no fma, one order of operations, so
// the same bits from every compiler and instruction set.  Errors stay within 2 ulp of the result (near a zero of sin or cos: 1e-17
// absolute), far below the float32 that is made of them.
#pragma once
#include <cstdint>
#include <cstring>

namespace e0 {
namespace E0_ISA {

// Nearest integer for |x| < 2^51: adding 1.5*2^52 leaves no bits behind the point.
static inline double nearest(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }

// Valid for |x| < 2^19 (positions of half a million at frequency 1).  pi/2 in three parts, the first two of 33 bits, so that their
// products with the quadrant number are exact; Taylor polynomials to degree 19 and 18 on |r| <= pi/4 (truncation under 1e-19).
static inline void sincos_f64(double x, double& sin_x, double& cos_x) {
    double n = nearest(x * 0x1.45f306dc9c883p-1);
    double r = x - n * 0x1.921fb54400000p+0;
    r = r - n * 0x1.0b4611a600000p-34;
    r = r - n * 0x1.3198a2e037073p-69;
    double z = r * r;
    double s = -1.0 / 121645100408832000.0;
    s = s * z + 1.0 / 355687428096000.0;
    s = s * z - 1.0 / 1307674368000.0;
    s = s * z + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = r + (r * z) * s;
    double c = -1.0 / 6402373705728000.0;
    c = c * z + 1.0 / 20922789888000.0;
    c = c * z - 1.0 / 87178291200.0;
    c = c * z + 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = (1.0 - 0.5 * z) + (z * z) * c;
    int64_t quadrant = (int64_t)n & 3;
    double a = (quadrant & 1) ? c : s;
    double b = (quadrant & 1) ? s : c;
    sin_x = (quadrant & 2) ? -a : a;
    cos_x = (quadrant == 1 || quadrant == 2) ? -b : b;
}

// e^x for x <= 709; below -708 the result is 0 (what the sums here can no longer see).  NaN stays NaN.
static inline double exp_f64(double x) {
    if (x != x) return x;
    if (x < -708.0) return 0.0;
    double n = nearest(x * 0x1.71547652b82fep+0);
    double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = 1.0 + (r + (r * r) * p);
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, 8);
    return p * scale;
}

// ln x for a normal positive x; anything else gives NaN.  x = m*2^e with m in [0.7, 1.41); ln m = 2*atanh((m-1)/(m+1)).
static inline double log_f64(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    int64_t exponent = (int64_t)(bits >> 52);
    if (exponent <= 0 || exponent >= 0x7ff) return x - x == 0.0 ? (x - x) / (x - x) : x - x;
    exponent -= 1023;
    bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
    double m;
    std::memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = 1.0 / 23.0;
    for (int d = 21; d >= 3; d -= 2) p = p * z + 1.0 / d;
    double e = (double)exponent;
    return e * 0x1.62e42fee00000p-1 + ((2.0 * s + 2.0 * ((s * z) * p)) + e * 0x1.a39ef35793c76p-33);
}

}  // namespace E0_ISA
}  // namespace e0
