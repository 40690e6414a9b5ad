# edge0verify.dump._onepass: comparison of two tensors in one pass.
nanobind_add_module(_onepass NOMINSIZE kernels/bind/compare.cpp)
target_include_directories(_onepass PRIVATE kernels)
target_link_libraries(_onepass PRIVATE Threads::Threads)
e0_isa_objects(_onepass kernels/compare/onepass.cpp)
install(TARGETS _onepass LIBRARY DESTINATION edge0verify/dump)
