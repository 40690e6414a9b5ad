# edge0verify.study._oracle: float64 values of quantised products from their operands, and the sums their bounds need.
nanobind_add_module(_oracle NB_STATIC NOMINSIZE kernels/bind/study.cpp)
target_include_directories(_oracle PRIVATE kernels)
target_link_libraries(_oracle PRIVATE Threads::Threads)
e0_isa_objects(_oracle kernels/study/rows.cpp kernels/study/spread.cpp)
install(TARGETS _oracle LIBRARY DESTINATION edge0verify/study)
