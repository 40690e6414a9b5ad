# edge0verify.runtime._phase: the portable kernels' CPU build as a plain library, launched by kernel name as a driver would.
add_library(_phase MODULE kernels/portable/entries.cpp)
set_target_properties(_phase PROPERTIES PREFIX "" SUFFIX ".so")
target_include_directories(_phase PRIVATE kernels)
target_compile_options(_phase PRIVATE -Wno-unused-function)
target_link_libraries(_phase PRIVATE Threads::Threads)
install(TARGETS _phase LIBRARY DESTINATION edge0verify/runtime)
