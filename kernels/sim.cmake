# edge0verify/runtime/_simdev.so: the program of a simulated device (an executable; its name lets the package find it as it finds the modules).
add_executable(_simdev kernels/sim/device.cpp)
set_target_properties(_simdev PROPERTIES SUFFIX ".so" POSITION_INDEPENDENT_CODE ON)
target_include_directories(_simdev PRIVATE kernels)
target_compile_options(_simdev PRIVATE -Wno-unused-function -fPIE)
target_link_options(_simdev PRIVATE -pie)
target_link_libraries(_simdev PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
install(TARGETS _simdev RUNTIME DESTINATION edge0verify/runtime)
