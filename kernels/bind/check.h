// Argument checks shared by the bindings: one line that says what was expected and what was found.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

namespace e0 {

namespace nb = nanobind;
typedef nb::ndarray<nb::ro, nb::device::cpu> In;      // only read
typedef nb::ndarray<nb::device::cpu> Out;             // written: a read-only array is a TypeError
typedef uint16_t half;                                // the bits of a float16

inline void check(bool ok, const std::string& message) {
    if (!ok) throw nb::value_error(message.c_str());
}

template <class T> struct DType;
template <> struct DType<float> { static constexpr const char* name = "float32"; static constexpr auto code = nb::dlpack::dtype_code::Float; };
template <> struct DType<double> { static constexpr const char* name = "float64"; static constexpr auto code = nb::dlpack::dtype_code::Float; };
template <> struct DType<half> { static constexpr const char* name = "float16"; static constexpr auto code = nb::dlpack::dtype_code::Float; };
template <> struct DType<int8_t> { static constexpr const char* name = "int8"; static constexpr auto code = nb::dlpack::dtype_code::Int; };
template <> struct DType<int32_t> { static constexpr const char* name = "int32"; static constexpr auto code = nb::dlpack::dtype_code::Int; };
template <> struct DType<uint8_t> { static constexpr const char* name = "uint8"; static constexpr auto code = nb::dlpack::dtype_code::UInt; };

template <class Array>
std::string shape_text(const Array& a) {
    std::string s = "[";
    for (size_t i = 0; i < a.ndim(); ++i) s += (i ? ", " : "") + std::to_string(a.shape(i));
    return s + "]";
}

// The data of a C-contiguous array of T; const for In.
template <class T, class Array>
auto pointer(const Array& a, const std::string& what) {
    const nb::dlpack::dtype t = a.dtype();
    check(t.code == (uint8_t)DType<T>::code && t.bits == 8 * sizeof(T) && t.lanes == 1,
          what + ": expected " + DType<T>::name + ", found another dtype of " + std::to_string(t.bits) + " bits");
    int64_t expected = 1;
    for (size_t i = a.ndim(); i-- > 0;) {
        check(a.size() == 0 || a.shape(i) < 2 || a.stride(i) == expected, what + ": expected a C-contiguous array");
        expected *= (int64_t)a.shape(i);
    }
    typedef std::conditional_t<std::is_same_v<Array, In>, const T, T> Element;
    return (Element*)a.data();
}
template <class T, class Array>
auto pointer(const Array& a, const std::string& what, std::initializer_list<int64_t> shape) {
    bool same = a.ndim() == shape.size();
    size_t i = 0;
    std::string text = "[";
    for (int64_t n : shape) {
        same = same && (int64_t)a.shape(i) == n;
        text += (i ? ", " : "") + std::to_string(n);
        ++i;
    }
    check(same, what + ": expected shape " + text + "], found " + shape_text(a));
    return pointer<T>(a, what);
}

}  // namespace e0
