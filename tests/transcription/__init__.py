"""The contract table of kernels/README.md written out a second time, slowly, in plain numpy: the judge of the compiled kernels.

It shares no code with edge0verify.numerics but the `Blocks` record, and none with kernels/.  Every float32 operation is one
numpy operation (or one `fma` below), in the order the table states; only rows and tokens are handled side by side.
"""
