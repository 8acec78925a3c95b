// SPDX-License-Identifier: Apache-2.0
// Programs that only look like those of a build with CUDA, for tools/gpu_check: what it makes of
// stages that fail, crash, hang or print garbage. Measured runs are simulations here.
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "tests/command_line.h"

namespace metronome::testing {

// Runs what it is told to, simulated. Two options gain, and more together, unless $FAULT is
// "apart". $FAULT may also be an argument to crash at, "uneven" (invariance does not hold),
// "slow", "garbage" (reports of a bench are no JSON), "partial" (a bench fails behind its fastest
// step) or "dead" (nothing starts).
constexpr const char* kFakeMetronome = R"(#!/bin/bash
[[ "$FAULT" == dead ]] && { echo "no such library" >&2; exit 127; }
[[ "$1" == --version ]] && { echo "metronome 0"; exit 0; }
if [[ "$FAULT" == uneven ]] && [[ " $* " == *" cuda.invariance=chunk "* ||
                                  " $* " == *" --invariance chunk "* ]]; then
  mkdir -p "$XDG_CACHE_HOME/metronome"
  echo "n 512, k 64: id 66, digest 1234" >"$XDG_CACHE_HOME/metronome/invariance.txt"
  exit 2
fi
[[ -n "$FAULT" && " $* " == *"$FAULT"* ]] && kill -SEGV $$
if [[ " $* " == *" --products "* ]]; then
  [[ "$FAULT" == slow ]] && { trap 'echo "{\"points\": []}" >"$7"; exit 143' TERM; sleep 100; }
  echo "{\"model\": \"$2\", \"points\": [{\"product\": \"down\", \"tokens\": 64, \"floor_us\": 5,
    \"kernels\": [{\"kernel\": \"cublaslt invariant\", \"us\": 10}, {\"kernel\": \"prefill_gemm\",
    \"us\": 8, \"rows\": 64, \"columns\": 96, \"cluster\": 1, \"chosen\": true}]}]}" >"$7"
  exit 0
fi
if [[ "$1" == bench ]]; then
  if [[ "$FAULT" == partial && " $* " == *" --fused-decodes "* ]]; then
    echo "{\"points\": [{\"decodes\": 1, \"context\": 128, \"chunk\": 0, \"prefix\": 0,
      \"median_us\": 1}]}" >"$6"
    exit 1
  fi
  [[ "$FAULT" == garbage ]] && { echo "{\"points\": 7" >"$6"; exit 0; }
  scale=10; [[ "$4" == none ]] && scale=8
  [[ " $* " == *" --fused-decodes "* ]] && scale=7
  [[ " $* " == *" --early-launches "* ]] && scale=11
  if [[ " $* " == *" --wgmma-products "* ]]; then
    scale=$((scale - 1))
    [[ "$FAULT" == apart ]] && scale=9
  fi
  echo "{\"model\": \"$2\", \"invariance\": \"$4\", \"points\": [
    {\"decodes\": 1, \"context\": 128, \"chunk\": 0, \"prefix\": 0, \"median_us\": $scale},
    {\"decodes\": 32, \"context\": 128, \"chunk\": 64, \"prefix\": 0,
     \"median_us\": $scale}]}" >"$6"
  exit 0
fi
[[ "$1" == calibrate ]] && exit 0
exec "$REAL" "${@/--backend=cuda/--backend=sim}"
)";

// $FAULT may be "crash", "fail", "hang" or "slow-tests", followed by "=" and a part of the name of
// a test file.
constexpr const char* kFakeTests = R"(#!/bin/bash
[[ "$FAULT" == dead ]] && exit 127
if [[ "$FAULT" == *=* && "$*" == *"${FAULT#*=}"* ]]; then
  echo "a case of $4"
  case "${FAULT%%=*}" in
    crash) kill -SEGV $$ ;;
    fail) exit 3 ;;
    hang) sleep 100 ;;
    slow-tests) while sleep 0.1; do echo "one more case"; done ;;
  esac
fi
echo "ran $4"
)";

// A folder for a build and results, and calls of gpu_check there.
struct FakeGpuBuild {
  ScratchFolder scratch;
  std::string out = scratch.path() + "/out";
  std::string gpu = "unknown";  // its folder in `out`

  FakeGpuBuild() {
    write_program("build/metronome", kFakeMetronome);
    write_program("build/metronome_gpu_tests", kFakeTests);
  }

  void write_program(const std::string& name, const std::string& text) const {
    ::chmod(scratch.write(name, text).c_str(), 0755);
  }

  // A card, as nvidia-smi would list it.
  void install(const std::string& name, const std::string& folder) {
    write_program("bin/nvidia-smi",
                  "#!/bin/bash\n[[ \"$*\" == *noheader* ]] || echo name\necho \"" + name + "\"\n");
    gpu = folder;
  }

  CommandResult check(const std::string& only, const std::string& fault,
                      const std::string& options = "", const std::string& prefix = "") const {
    return run_program("tools/gpu_check",
                       "--build '" + scratch.path() + "/build' --out '" + out +
                           "' --requests 6 --only " + only + " " + options,
                       "FAULT='" + fault + "' REAL='" + metronome_program() + "' PYTHONPATH='" +
                           scratch.path() + "/python' PATH='" + scratch.path() +
                           "/bin':\"$PATH\" " + prefix);
  }

  // Of the GPU's folder.
  std::string text(const std::string& name) const {
    return read_text_file(out + "/" + gpu + "/" + name);
  }
};

}  // namespace metronome::testing
