// SPDX-License-Identifier: Apache-2.0
// The tensors of models with a vision tower.
#include <string>
#include <utility>
#include <vector>

#include "core/base/files.h"
#include "core/model/model_catalogue.h"
#include "models/weights/model_weights.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"
#include "tests/models/weights/safetensors_bytes.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

std::string folder_of(const std::string& name) {
  return testing::source_dir() + "/tests/fixtures/vision_models/" + name;
}

ModelConfig model_in(const std::string& folder) {
  return parse_hugging_face_config(read_file(folder + "/config.json").value(), "config.json",
                                   "test");
}

TEST_CASE("a tower has as many weights as the counts say", "[model][images]") {
  const ModelConfig model = model_in(folder_of("one-image"));
  std::int64_t num_weights = 0;
  for (const WeightSpec& spec : weight_specs(model)) num_weights += spec.rows * spec.cols;
  CHECK(num_weights == model.n_params());
}

// A copy of a safetensors file in which tensors of all experts have their last two dimensions
// exchanged.
std::string with_exchanged_experts(const SafetensorsFile& file) {
  std::string header;
  std::string data;
  for (const Tensor& tensor : file.tensors()) {
    std::vector<std::int64_t> shape = tensor.shape;
    const auto* const bytes = reinterpret_cast<const char*>(tensor.bytes.data());
    const std::size_t begin = data.size();
    if (tensor.name.find(".experts.") == std::string::npos) {
      data.append(bytes, tensor.bytes.size());
    } else {
      const std::int64_t size = std::ssize(tensor.bytes) / tensor.num_elements();
      for (std::int64_t i = 0; i < shape[0] * shape[2]; ++i) {
        for (std::int64_t row = 0; row < shape[1]; ++row) {
          const std::int64_t in_expert = row * shape[2] + i % shape[2];
          const std::int64_t element = i / shape[2] * shape[1] * shape[2] + in_expert;
          data.append(bytes + element * size, static_cast<std::size_t>(size));
        }
      }
      std::swap(shape[1], shape[2]);
    }
    header +=
        (header.empty() ? "{" : ",") +
        testing::header_entry(tensor.name, tensor.type_name, shape_text(shape), begin, data.size());
  }
  return testing::safetensors_bytes(header + "}", data);
}

TEST_CASE("experts are read in both of the layouts that are published", "[model][images]") {
  const std::string folder = folder_of("mixture");
  const ModelConfig model = model_in(folder);
  REQUIRE(model.n_experts > 0);
  const testing::ScratchFolder scratch;
  scratch.write("model.safetensors",
                with_exchanged_experts(SafetensorsFile(folder + "/model.safetensors")));
  const auto usual = open_model_folder(folder, model);
  const auto exchanged = open_model_folder(scratch.path(), model);
  CHECK(exchanged->unused_tensors() == usual->unused_tensors());
  int num_of_experts = 0;
  for (const WeightSpec& spec : weight_specs(model)) {
    INFO(spec.name);
    num_of_experts += spec.name.find(".experts.") != std::string::npos ? 1 : 0;
    std::vector<float> expected(static_cast<std::size_t>(spec.rows * spec.cols));
    std::vector<float> found(expected.size(), -1.0f);
    usual->read(spec, 0, spec.rows, expected.data());
    const std::int64_t middle = spec.rows / 3;
    exchanged->read(spec, 0, middle, found.data());
    exchanged->read(spec, middle, spec.rows, found.data() + middle * spec.cols);
    CHECK(found == expected);
  }
  CHECK(num_of_experts == 3 * model.n_experts * model.n_layers);
}

}  // namespace
}  // namespace metronome::TEST_FILE
