// A fixed-size team of threads for loops over independent rows.
//
// Work items are handed out in order from one counter.  No result may depend on which thread takes an item: kernels write disjoint
// outputs and keep their own scratch, so the number of threads never changes a bit.
#pragma once
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace e0 {

// Calls body(item) for item = 0 .. items-1 on `threads` threads (the calling one included).  The first exception is rethrown here.
template <class Body>
void parallel_for(int64_t items, int threads, Body&& body) {
    if (threads > items) threads = (int)items;
    if (threads <= 1) {
        for (int64_t i = 0; i < items; ++i) body(i);
        return;
    }
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr error;
    auto run = [&] {
        try {
            for (int64_t i; !failed && (i = next.fetch_add(1)) < items;) body(i);
        } catch (...) {
            if (!failed.exchange(true)) error = std::current_exception();
        }
    };
    std::vector<std::thread> team;
    for (int t = 1; t < threads; ++t) team.emplace_back(run);
    run();
    for (auto& t : team) t.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace e0
