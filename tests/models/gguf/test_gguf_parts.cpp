// SPDX-License-Identifier: Apache-2.0
// Models in parts, as llama-gguf-split cuts them: whole ones, and one test for each way of being
// wrong.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_parts.h"
#include "models/weights/gguf_config.h"
#include "models/weights/gguf_weights.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"
#include "tests/models/weights/gguf_models.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

struct SplitKeys {
  std::uint32_t number = 0;
  std::uint32_t count = 3;
  std::uint32_t tensors = 3;
};

// gguf-split writes the first two in 16 bits.
GgufBytes& with_keys(GgufBytes& bytes, const SplitKeys& keys) {
  bytes.add("split.no", gguf_type::kUint16, low_bytes(keys.number, 2));
  bytes.add("split.count", gguf_type::kUint16, low_bytes(keys.count, 2));
  return bytes.add("split.tensors.count", gguf_type::kInt32, low_bytes(keys.tensors, 4));
}

// A part with one tensor of one number.
std::string part_of(const SplitKeys& keys, const std::string& tensor, float number) {
  GgufBytes bytes;
  if (keys.number == 0) bytes.text("general.name", "whole");
  return with_keys(bytes, keys).floats32(tensor, {1}, {number}).bytes();
}

// A folder of three parts, whose tensors are not in the order of their names.
struct Parts {
  ScratchFolder folder;
  std::string first;
  Parts() {
    first = write(1, part_of({.number = 0}, "b", 1));
    write(2, part_of({.number = 1}, "a", 2));
    write(3, part_of({.number = 2}, "c", 3));
  }
  std::string write(int part, const std::string& bytes) const {
    return folder.write("x-0000" + std::to_string(part) + "-of-00003.gguf", bytes);
  }
  std::string error() const {
    return error_of([this] { GgufFile{first}; });
  }
  std::string path(int part) const {
    return folder.path() + "/x-0000" + std::to_string(part) + "-of-00003.gguf";
  }
  std::string role(int part) const {
    return "part " + std::to_string(part) + " of the model whose first part is " + first;
  }
};

float number_of(const GgufFile& file, const char* tensor) {
  const GgufTensor* const found = file.find_tensor(tensor);
  REQUIRE(found != nullptr);
  float number = 0;
  REQUIRE(found->bytes.size() == sizeof number);
  std::memcpy(&number, found->bytes.data(), sizeof number);
  return number;
}

TEST_CASE("a model in parts is whole", "[core][gguf]") {
  const Parts parts;
  const GgufFile file(parts.first);
  CHECK(file.path() == parts.first);
  CHECK(file.text("general.name") == "whole");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[2].name == "c");
  CHECK(number_of(file, "a") == 2);
  CHECK(number_of(file, "b") == 1);
  CHECK(number_of(file, "c") == 3);
}

TEST_CASE("a file says that it is the only part", "[core][gguf]") {
  GgufBytes bytes;
  const std::string stored =
      with_keys(bytes, {.count = 1, .tensors = 0}).floats32("a", {1}, {1}).bytes();
  CHECK(GgufFile(bytes_of_text(stored), "m.gguf").tensors().size() == 1);
}

TEST_CASE("a part that is not the first is refused with the first one's name", "[core][gguf]") {
  const Parts parts;
  CHECK(error_of([&] { GgufFile{parts.path(2)}; }) ==
        parts.path(2) + ": split.no: is 1, that of part 2 of 3; allowed: the first part, " +
            parts.first);
  const std::string renamed = parts.folder.write("y.gguf", part_of({.number = 2}, "c", 3));
  CHECK(error_of([&] { GgufFile{renamed}; }) ==
        renamed + ": split.no: is 2, that of part 3 of 3; allowed: the first part");
  const std::string beyond = parts.folder.write("y.gguf", part_of({.number = 3}, "c", 3));
  CHECK(error_of([&] { GgufFile{beyond}; }) ==
        beyond + ": split.no: is 3, that of part none; allowed: the first part");
}

TEST_CASE("a part that is missing is named", "[core][gguf]") {
  const ScratchFolder folder;
  const std::string first =
      folder.write("x-00001-of-00002.gguf", part_of({.count = 2, .tensors = 2}, "a", 1));
  CHECK(error_of([&] { GgufFile{first}; }) ==
        folder.path() +
            "/x-00002-of-00002.gguf: cannot be read: No such file or directory; allowed: part 2 "
            "of the model whose first part is " +
            first);
  const std::string renamed = folder.write("x.gguf", part_of({.count = 2, .tensors = 2}, "a", 1));
  CHECK(error_of([&] { GgufFile{renamed}; }) ==
        renamed +
            ": split.count: is 2, and the file's name is not that of the first part of 2; "
            "allowed: names as llama-gguf-split gives them, NAME-00001-of-00003");
}

TEST_CASE("a part of another model is named", "[core][gguf]") {
  const Parts parts;
  parts.write(2, part_of({.number = 2}, "a", 2));
  CHECK(parts.error() == parts.path(2) + ": split.no: is 2; allowed: 1, that of " + parts.role(2));
  parts.write(2, part_of({.number = 1, .count = 4}, "a", 2));
  CHECK(parts.error() ==
        parts.path(2) + ": split.count: is 4; allowed: 3, that of " + parts.role(2));
  parts.write(2, part_of({.number = 1, .tensors = 4}, "a", 2));
  CHECK(parts.error() ==
        parts.path(2) + ": split.tensors.count: is 4; allowed: 3, that of " + parts.role(2));
  parts.write(2, GgufBytes().floats32("a", {1}, {2}).bytes());
  CHECK(parts.error() ==
        parts.path(2) + ": split.no: is missing; allowed: 1, that of " + parts.role(2));
  parts.write(2, part_of({.number = 1}, "b", 2));
  CHECK(parts.error() ==
        parts.path(2) + ": tensor 'b': is in an earlier part, too; allowed: " + parts.role(2));
  parts.write(2, "GGML");
  CHECK(parts.error().starts_with(parts.path(2) + ": header: does not begin with GGUF"));
}

TEST_CASE("parts that lack a tensor are refused", "[core][gguf]") {
  const Parts parts;
  for (int i = 1; i <= 3; ++i) {
    const auto number = static_cast<std::uint32_t>(i - 1);
    parts.write(i, part_of({.number = number, .tensors = 4}, std::to_string(i), 1));
  }
  CHECK(parts.error() == parts.first +
                             ": split.tensors.count: is not 3, the number of tensors in all parts; "
                             "allowed: the parts of one model");
  GgufBytes silent;
  silent.add("split.count", gguf_type::kUint16, low_bytes(3, 2));
  parts.write(1, silent.bytes());
  CHECK(parts.error() == parts.first + ": split.no: is missing; allowed: 0 in the first part of 3");
}

TEST_CASE("names of parts", "[core][gguf]") {
  CHECK(gguf_part_path("a/x-00002-of-00012.gguf", 1, 12, 0) == "a/x-00001-of-00012.gguf");
  CHECK(gguf_part_path("-00001-of-00002.gguf", 0, 2, 1) == "-00002-of-00002.gguf");
  CHECK(gguf_part_path("x-00001-of-00002.gguf", 1, 2, 0).empty());
  CHECK(gguf_part_path("x.gguf", 0, 2, 1).empty());
  CHECK(gguf_part_path("x-100000-of-100001.gguf", 99'999, 100'001, 0) == "x-00001-of-100001.gguf");
  CHECK(gguf_model_name("x-00001-of-00002") == "x");
  CHECK(gguf_model_name("x-0001-of-00002") == "x-0001-of-00002");
  CHECK(gguf_model_name("-00001-of-00002") == "-00001-of-00002");
  CHECK(gguf_model_name("x") == "x");
}

// The weights are read from every part.
TEST_CASE("a model in parts has the configuration and the weights of the whole", "[core][gguf]") {
  const auto add_first = [](GgufBytes& bytes) {
    bytes.floats32("token_embd.weight", {7, 6}, zeros(42))
        .floats32("output_norm.weight", {6}, zeros(6));
  };
  const auto add_layer = [](GgufBytes& bytes, int layer) {
    const std::string in = "blk." + std::to_string(layer) + ".";
    const auto value = static_cast<float>(layer + 1);
    bytes.floats32(in + "attn_norm.weight", {6}, zeros(6))
        .floats32(in + "ffn_norm.weight", {6}, zeros(6));
    bytes.floats32(in + "attn_q.weight", {16, 6}, std::vector<float>(96, value));
    bytes.floats32(in + "attn_k.weight", {8, 6}, zeros(48))
        .floats32(in + "attn_v.weight", {8, 6}, zeros(48));
    bytes.floats32(in + "attn_output.weight", {6, 16}, zeros(96));
    bytes.floats32(in + "ffn_gate.weight", {5, 6}, zeros(30))
        .floats32(in + "ffn_up.weight", {5, 6}, zeros(30));
    bytes.floats32(in + "ffn_down.weight", {6, 5}, zeros(30));
  };
  const ScratchFolder folder;
  GgufBytes whole = keys_of("qwen2");
  add_first(whole);
  add_layer(whole, 0);
  add_layer(whole, 1);
  const std::string one = folder.write("x.gguf", whole.bytes());
  constexpr std::uint32_t kTensors = 2 + 2 * 9;
  GgufBytes parts[3] = {keys_of("qwen2"), {}, {}};
  add_first(parts[0]);
  add_layer(parts[1], 1);
  add_layer(parts[2], 0);
  std::string first;
  for (std::uint32_t i = 0; i < 3; ++i) {
    with_keys(parts[i], {.number = i, .tensors = kTensors});
    const std::string path =
        folder.write("x-0000" + std::to_string(i + 1) + "-of-00003.gguf", parts[i].bytes());
    if (i == 0) first = path;
  }
  const ModelConfig model = read_gguf_config(GgufFile(first), "x");
  CHECK(model == read_gguf_config(GgufFile(one), "x"));
  const auto weights = open_gguf_weights(first, model);
  for (const std::int64_t layer : {0, 1}) {
    std::vector<float> row(6);
    weights->read(weight_spec(model, layer, "self_attn.q_proj"), 3, 4, row.data());
    CHECK(row == std::vector<float>(6, static_cast<float>(layer + 1)));
  }
  CHECK(weights->unused_tensors().empty());
}

}  // namespace
}  // namespace metronome::TEST_FILE
