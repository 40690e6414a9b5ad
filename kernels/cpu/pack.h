// GGUF rows to the tiles that the CPU kernels read.
#pragma once
#include <cstdlib>
#include <memory>
#include <vector>

#include "cpu/types.h"

namespace e0 {

struct FormatInfo { const char* name; int values, bytes; };
extern const FormatInfo kFormatInfo[kFormats];

class Packed {
public:
    // raw: [experts][rows][k / values * bytes], copied
    Packed(Format format, const uint8_t* raw, int64_t experts, int64_t rows, int64_t k);
    const WeightView& view() const { return view_; }

private:
    struct Free { void operator()(void* p) const { std::free(p); } };
    template <class T> T* allocate(std::unique_ptr<T, Free>& holder, int64_t n);
    void pack_row(int64_t expert, int64_t row, const uint8_t* p);

    WeightView view_{};
    std::vector<uint8_t> raw_;
    std::unique_ptr<Block32, Free> blocks_;
    std::unique_ptr<Super, Free> supers_;
    std::unique_ptr<Plain32, Free> plain_;
};


}  // namespace e0
