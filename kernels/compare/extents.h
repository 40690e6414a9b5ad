// Where the elements of a dataset lie in its file, and reading a run of them with pread.
#pragma once
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

namespace e0 {

struct Extents {
    int fd;
    std::vector<int64_t> first;       // first byte of each extent in the dataset, ascending from 0, and one entry for the end
    std::vector<int64_t> offset;      // where it lies in the file

    // Bytes [at, at + n) of the dataset.
    void read(char* out, int64_t at, int64_t n) const {
        size_t low = 0, high = offset.size();
        while (high - low > 1) {
            size_t mid = (low + high) / 2;
            (first[mid] <= at ? low : high) = mid;
        }
        for (size_t i = low; n > 0; ++i) {
            if (i >= offset.size()) throw std::runtime_error("extents end before the dataset does");
            int64_t skip = at - first[i], take = std::min(n, first[i + 1] - at);
            read_at(out, offset[i] + skip, take);
            out += take, at += take, n -= take;
        }
    }

private:
    void read_at(char* out, int64_t at, int64_t n) const {
        while (n > 0) {
            ssize_t got = ::pread(fd, out, (size_t)n, (off_t)at);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) throw std::runtime_error(got ? std::strerror(errno) : "the file ends too early");
            out += got, at += got, n -= got;
        }
    }
};

}  // namespace e0
