# SPDX-License-Identifier: Apache-2.0
# For emscripten: what core, engines and sim use. Headers are this machine's, by links in a folder
# of their own, because those of another C library lie beside them. yaml-cpp is compiled from its
# source, which tools/check_wasm fetches.
set(METRONOME_YAML_CPP_SOURCE ${PROJECT_SOURCE_DIR}/build/yaml-cpp CACHE PATH
  "Source of yaml-cpp")

# Exceptions are WebAssembly's own. The program may read the files of the machine (node has them).
# It is one file, because emscripten 3.1.6 asks node 18 and later for the other by URL.
add_compile_options(-fwasm-exceptions)
add_link_options(-fwasm-exceptions -sALLOW_MEMORY_GROWTH -sTOTAL_STACK=8MB -sENVIRONMENT=node
  -sNODERAWFS -sEXIT_RUNTIME -sSINGLE_FILE)

set(headers ${CMAKE_BINARY_DIR}/headers)
file(MAKE_DIRECTORY ${headers})
file(CREATE_LINK /usr/include/boost ${headers}/boost SYMBOLIC)
file(CREATE_LINK /usr/include/nlohmann ${headers}/nlohmann SYMBOLIC)
file(CREATE_LINK /usr/include/eigen3/Eigen ${headers}/Eigen SYMBOLIC)
file(CREATE_LINK /usr/include/fmt ${headers}/fmt SYMBOLIC)
foreach(library Boost::headers nlohmann_json::nlohmann_json Eigen3::Eigen)
  add_library(${library} INTERFACE IMPORTED)
  target_include_directories(${library} SYSTEM INTERFACE ${headers})
endforeach()

option(YAML_CPP_BUILD_CONTRIB "" OFF)
option(YAML_CPP_BUILD_TESTS "" OFF)
option(YAML_CPP_BUILD_TOOLS "" OFF)
add_subdirectory(${METRONOME_YAML_CPP_SOURCE} yaml-cpp EXCLUDE_FROM_ALL SYSTEM)
