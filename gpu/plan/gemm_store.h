// Algorithms of matrix products that were chosen by timing, kept from run to run. No device code.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace metronome {

// What a choice holds for. Any difference means: choose again.
struct GemmKey {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rows = 0;  // the bucket of m
  bool adds_output = false;
  bool has_float_output = false;
  bool is_invariant = false;
  auto operator<=>(const GemmKey&) const = default;
};

// cublasLtMatmulAlgo_t as it is: 8 words that are valid for one version of the library.
using GemmAlgorithm = std::array<std::uint64_t, 8>;

struct GemmChoice {
  GemmAlgorithm algorithm{};
  double microseconds = 0;  // when it was timed
  std::string name;         // "algo 66, tile 4, stages 3, split-k 1": for people
  bool operator==(const GemmChoice&) const = default;
};

class GemmStore {
 public:
  // `machine` is all a choice depends on beside its key: GPU, driver, version of cuBLASLt,
  // workspace. An empty path stands for no file: nothing is read or written.
  explicit GemmStore(std::string machine) : machine_(std::move(machine)) {}

  // Adds the choices of this machine from a file that write() left, in place of those of the same
  // keys. A file that is missing, or of another machine or version of this program, gives none; a
  // malformed one throws ConfigError and adds none.
  void read(const std::string& path);
  // Replaces the file, whole or not at all. Choices of other machines in it are kept. Throws
  // ConfigError when it cannot be written, or holds what write() did not leave.
  void write(const std::string& path) const;

  const GemmChoice* find(const GemmKey& key) const;  // null: none
  void put(const GemmKey& key, const GemmChoice& choice);
  void erase(const GemmKey& key);
  // By put() or erase(), since read() or construction.
  bool has_changed() const { return has_changed_; }
  const std::map<GemmKey, GemmChoice>& choices() const { return choices_; }

 private:
  std::string machine_;
  std::map<GemmKey, GemmChoice> choices_;
  bool has_changed_ = false;
};

// The product that a key is of, for people: "n 64, k 128, bfloat16 out, added".
std::string product_name(const GemmKey& key);

// The choices for people: a line per shape, below it one per bucket and mode.
std::string describe_gemm_choices(const GemmStore& store);

}  // namespace metronome
