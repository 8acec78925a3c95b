# SPDX-License-Identifier: Apache-2.0
# The package of Python in BUILD/python/metronome: its sources, and the module metronome._native
# with the rooms. Needs Python's headers and nanobind, which tools/wheel installs.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
# CMake before 3.26 does not know the stable ABI. On Linux, nanobind asks only for this name.
if(NOT TARGET Python::SABIModule)
  add_library(Python::SABIModule INTERFACE IMPORTED)
endif()
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind 3.1 CONFIG REQUIRED)

set(package ${PROJECT_BINARY_DIR}/python/metronome)
file(GLOB python_sources CONFIGURE_DEPENDS python/*.cpp)
if(METRONOME_STATIC)
  list(APPEND python_sources tools/static_libraries.cpp)
endif()
nanobind_add_module(metronome_python NB_STATIC STABLE_ABI NB_SUPPRESS_WARNINGS NOMINSIZE
  PROTECT_STACK ${python_sources})
set_target_properties(metronome_python PROPERTIES OUTPUT_NAME _native
  LIBRARY_OUTPUT_DIRECTORY ${package})
target_link_libraries(metronome_python PRIVATE metronome_light_options metronome_commands
  metronome_gpu ${FMT_TARGET})
# Nobody else sees what the rooms and their libraries define, so other modules may have their own.
target_link_options(metronome_python PRIVATE LINKER:--exclude-libs,ALL)

# The package runs from here, too.
file(MAKE_DIRECTORY ${package})
file(GLOB package_files CONFIGURE_DEPENDS python/metronome/*.py python/metronome/py.typed)
foreach(file ${package_files})
  get_filename_component(name ${file} NAME)
  file(CREATE_LINK ${file} ${package}/${name} SYMBOLIC)
endforeach()
nanobind_add_stub(metronome_stub MODULE _native OUTPUT ${package}/_native.pyi
  PYTHON_PATH ${package} DEPENDS metronome_python)
