# edge0verify.variants._kernels, and _mutants: the same sources with planted faults, for tests and the selftest only.
foreach(module _kernels _mutants)
  # a domain each: neither takes the other's Weights for its own
  nanobind_add_module(${module} NB_STATIC NB_DOMAIN edge0${module} kernels/bind/variants.cpp kernels/cpu/runtime.cpp kernels/cpu/pack.cpp)
  target_include_directories(${module} PRIVATE kernels)
  target_compile_definitions(${module} PRIVATE E0_MODULE=${module})
  target_link_libraries(${module} PRIVATE Threads::Threads)
endforeach()
set_target_properties(_mutants PROPERTIES E0_DEFS "E0_MUTANTS=1")
target_compile_definitions(_mutants PRIVATE E0_MUTANTS=1)
target_sources(_mutants PRIVATE kernels/cpu/faults.cpp)

foreach(module _kernels _mutants)
  e0_isa_objects(${module} kernels/cpu/table.cpp)
  foreach(isa ${E0_ISAS})    # GCC 12 warns about its own AVX-512 headers
    target_compile_options(${module}_${isa} PRIVATE -Wno-maybe-uninitialized)
  endforeach()
endforeach()

# the phase form: the source that the GPU builds share, as one more object of the product module
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/kernels/portable/table.cpp)
  target_sources(_kernels PRIVATE kernels/portable/table.cpp kernels/portable/entries.cpp)
  target_compile_definitions(_kernels PRIVATE E0_HAVE_phase=1)
endif()

install(TARGETS _kernels _mutants LIBRARY DESTINATION edge0verify/variants)
