# edge0verify.engine._native: everything of the engine that belongs to no variant.
nanobind_add_module(_native NB_STATIC NOMINSIZE kernels/bind/engine.cpp kernels/bind/engine_cache.cpp)
target_include_directories(_native PRIVATE kernels)
target_link_libraries(_native PRIVATE Threads::Threads)
e0_isa_objects(_native kernels/engine/table.cpp kernels/engine/rows.cpp kernels/engine/dense.cpp kernels/engine/attention.cpp)
install(TARGETS _native LIBRARY DESTINATION edge0verify/engine)
