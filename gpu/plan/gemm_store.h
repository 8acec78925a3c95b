// SPDX-License-Identifier: Apache-2.0
// Keeps algorithms of matrix products, chosen by timing, from run to run. No device code.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace metronome {

// The conditions under which a choice is valid. Any difference requires a new choice.
struct GemmKey {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rows = 0;  // the bucket of m
  bool adds_output = false;
  bool has_float_output = false;
  bool is_invariant = false;
  auto operator<=>(const GemmKey&) const = default;
};

// cublasLtMatmulAlgo_t as 8 words. They are valid for one version of the library.
using GemmAlgorithm = std::array<std::uint64_t, 8>;

struct GemmChoice {
  GemmAlgorithm algorithm{};
  double microseconds = 0;  // at the time of the choice
  std::string name;         // human-readable: "algo 66, tile 4, stages 3, split-k 1"
  bool operator==(const GemmChoice&) const = default;
};

class GemmStore {
 public:
  // `machine` is all that a choice depends on beside its key: GPU, driver, cuBLASLt version,
  // workspace. With an empty path, read() and write() do nothing.
  explicit GemmStore(std::string machine) : machine_(std::move(machine)) {}

  // Adds this machine's choices from a file of write(). They replace choices with the same keys. A
  // missing file, or one of another machine or program version, gives none. A malformed file throws
  // ConfigError and adds none.
  void read(const std::string& path);
  // Replaces the file atomically, and keeps other machines' choices. Throws ConfigError if the file
  // cannot be written, or if it holds anything else than write() leaves.
  void write(const std::string& path) const;

  const GemmChoice* find(const GemmKey& key) const;  // null if there is none
  void put(const GemmKey& key, const GemmChoice& choice);
  void erase(const GemmKey& key);
  // Whether put() or erase() changed anything since read() or construction.
  bool has_changed() const { return has_changed_; }
  const std::map<GemmKey, GemmChoice>& choices() const { return choices_; }

 private:
  std::string machine_;
  std::map<GemmKey, GemmChoice> choices_;
  bool has_changed_ = false;
};

// The product of a key, human-readable: "n 64, k 128, bfloat16 out, added".
std::string product_name(const GemmKey& key);

// The choices, human-readable: a line for each shape, then one for each bucket and mode.
std::string describe_gemm_choices(const GemmStore& store);

}  // namespace metronome
