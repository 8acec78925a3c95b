# SPDX-License-Identifier: Apache-2.0
# Turns a text file into a C++ source that defines it as a string. The program thus contains its
# catalogues:
#   cmake -DINPUT=models.yaml -DOUTPUT=models_yaml.cpp -DSYMBOL=kModelsYaml -P embed.cmake
# defines `extern const std::string_view metronome::kModelsYaml`.
foreach(name INPUT OUTPUT SYMBOL)
  if(NOT DEFINED ${name} OR "${${name}}" STREQUAL "")
    message(FATAL_ERROR "embed.cmake: -D${name}=... is missing")
  endif()
endforeach()

file(READ "${INPUT}" content)
set(delimiter "embedded_text")
string(FIND "${content}" ")${delimiter}\"" clash)
if(NOT clash EQUAL -1)
  message(FATAL_ERROR "embed.cmake: ${INPUT} contains the delimiter of the string literal")
endif()
get_filename_component(input_name "${INPUT}" NAME)
file(WRITE "${OUTPUT}" "// Generated from ${input_name} by embed.cmake.
#include <string_view>

// Compilers need not support literals as long as this; all of ours do.
#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace metronome {

extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL} = R\"${delimiter}(${content})${delimiter}\";

}  // namespace metronome
")
