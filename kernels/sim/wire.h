// What the runtime `sim` says to a simulated device and what it hears back: fixed records over a SOCK_SEQPACKET socket.
// edge0verify/runtime/sim_process.py packs and unpacks the same.
#pragma once
#include <cstdint>

namespace e0sim {

enum Op : uint32_t { LAUNCH = 1, COPY = 2, FILL = 3, PEER = 4, HANG = 5, PING = 6 };
enum ArgKind : uint32_t { SCALAR = 0, POINTER = 1 };
const int kArgs = 20;

struct Arg {
    uint32_t kind, size;
    uint64_t value;      // a pointer, or a scalar's bytes
    uint64_t extent;     // bytes behind a pointer
};
struct Command {
    uint32_t op, count;  // count: arguments of a launch
    uint64_t a, b, c, d; // LAUNCH blocks; COPY to, from, bytes, wrong; FILL to, value, bytes, width; PEER arena, allowed
    char name[64];
    Arg args[kArgs];
};
struct Reply {
    int32_t code, signal; // code: as drivers number it, 0 is success
    uint64_t address;     // of a fault
};

enum Code : int32_t { OK = 0, INVALID_VALUE = 1, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

}  // namespace e0sim
