// Answers tools/gguf_parity: writes the weights of a GGUF file as a model has them.
//   metronome_gguf_weights FILE OUT
// OUT gets the float32 of every tensor, one after the other. Standard output has one JSON object a
// line: the configuration, then name, rows, columns and stored type of each.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/gguf/gguf_file.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_weights.h"
#include "core/model/quantised_blocks.h"

namespace {

using namespace metronome;

Json described(const ModelConfig& model) {
  Json ids = Json::array();
  for (const std::int32_t id : model.eos_token_ids) ids.push_back(id);
  Json json = Json::object();
  json["architecture"] = model.architecture;
  json["unsupported"] = model.unsupported;
  json["eos_token_ids"] = std::move(ids);
  json["rope_kind"] = static_cast<std::int64_t>(model.rope_scaling.kind);
  json["rope_factor"] = model.rope_scaling.factor;
  json["rope_positions"] = model.rope_scaling.original_max_positions;
  json["norm_eps"] = model.norm_eps;
  return json;
}

void write_weights(const std::string& path, const ModelConfig& model, const std::string& out) {
  const auto weights = open_gguf_weights(path, model);
  std::ofstream file(out, std::ios::binary);
  for (const WeightSpec& spec : weight_specs(model)) {
    std::vector<float> values(static_cast<std::size_t>(spec.rows * spec.cols));
    weights->read(spec, 0, spec.rows, values.data());
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    Json json = Json::object();
    json["name"] = spec.name;
    json["rows"] = spec.rows;
    json["cols"] = spec.cols;
    json["type"] = std::string(to_string(weights->type(spec)));
    std::cout << json.dump() << '\n';
  }
  if (!file.flush()) throw std::runtime_error(out + ": cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: metronome_gguf_weights FILE OUT\n";
    return 2;
  }
  try {
    const ModelConfig model = read_gguf_config(GgufFile(argv[1]), "model");
    std::cout << described(model).dump() << '\n';
    if (model.unsupported.empty()) write_weights(argv[1], model, argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
