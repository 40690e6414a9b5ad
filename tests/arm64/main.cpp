// Prints one line per result: name, count, hash.  Built for the host and for arm64; the two outputs must be equal.
#include "common.h"

int main() {
    run_engine();
    run_oracle();
    run_onepass();
    run_portable();
    run_variants();
    return 0;
}
