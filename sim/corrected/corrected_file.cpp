// SPDX-License-Identifier: Apache-2.0
#include "sim/corrected/corrected_file.h"

#include <fmt/core.h>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/number_text.h"
#include "sim/cost/eager_passes.h"
#include "sim/cost/pass_cost.h"
#include "sim/roofline/roofline.h"

namespace metronome {
namespace {

constexpr double kMaxFactor = 100;

Json ranges_json(const std::vector<StepFactors::Range>& ranges) {
  Json json = Json::array();
  for (const StepFactors::Range& range : ranges) {
    json.push_back({range.max_tokens, range.factor, range.num_steps});
  }
  return json;
}

std::vector<StepFactors::Range> read_ranges(const JsonPlace& place) {
  std::vector<StepFactors::Range> ranges;
  place.for_each([&](const JsonPlace& entry) {
    std::vector<JsonPlace> values;
    entry.for_each([&](const JsonPlace& value) { values.push_back(value); });
    if (values.size() != 3) entry.fail("is not a list of three numbers; allowed: three");
    const StepFactors::Range range{values[0].integer(1, kMaxCount),
                                   values[1].number(1 / kMaxFactor, kMaxFactor),
                                   values[2].integer(0, kMaxCount)};
    if (!ranges.empty() && range.max_tokens <= ranges.back().max_tokens) {
      entry.fail(
          fmt::format("ends at {}; allowed: more than the previous range", range.max_tokens));
    }
    ranges.push_back(range);
  });
  if (ranges.empty()) place.fail("is empty");
  return ranges;
}

// A fitted factor of collectives would multiply the times of another link.
void require_links(const CostModelFile& file, const CorrectedModel& corrected,
                   const CostModelConfig& config) {
  if (config.tensor_parallel_size == 1 || corrected.fit.factors.link == 1) return;
  const auto fail = [&](const char* key, const std::string& given, const std::string& fitted) {
    throw UnplacedConfigError(
        key, (given.empty() ? "the default" : given) + " is not what " + file.name +
                 " was fitted with; allowed: " + (fitted.empty() ? "leave the key out" : fitted));
  };
  if (config.link != corrected.link) fail("cost_model.link", config.link, corrected.link);
  if (config.network != corrected.network) {
    fail("cost_model.network", config.network, corrected.network);
  }
  if (config.link_factor != corrected.link_factor) {
    fail("cost_model.link_factor", fixed_text(config.link_factor, 3),
         fixed_text(corrected.link_factor, 3));
  }
}

}  // namespace

Json corrected_body(const CorrectedModel& corrected) {
  Json json;
  json["base"] = corrected.base ? Json::parse(corrected.base->to_json()) : Json();
  const StepFactors& factors = corrected.fit.factors;
  json["decode"] = ranges_json(factors.decode);
  json["prompt"] = ranges_json(factors.prompt);
  json["decode_attention"] = factors.decode_attention;
  json["prompt_attention"] = factors.prompt_attention;
  json["link"] = factors.link;
  json["links"] = {{"link", corrected.link},
                   {"network", corrected.network},
                   {"link_factor", corrected.link_factor}};
  json["fitted_to"] = {{"intervals", corrected.num_intervals},
                       {"until_s", corrected.until_s ? Json(*corrected.until_s) : Json()},
                       {"instant_ns", corrected.fit.instant_ns},
                       {"sum_error", corrected.fit.sum_error},
                       {"mean_abs_error", corrected.fit.mean_abs_error}};
  return json;
}

CorrectedModel read_corrected(const CostModelFile& file) {
  const JsonPlace body(file.name + ": body", *file.body);
  CorrectedModel corrected;
  if (const JsonPlace base = body.at("base"); !base.is_null()) {
    corrected.base = parse_cost_model_file(base.json().dump(), file.name + ", its base");
    if (corrected.base->kind == "corrected") {
      base.fail("is a correction itself; allowed: a measured or fitted cost model, or null");
    }
  }
  StepFactors& factors = corrected.fit.factors;
  factors.decode = read_ranges(body.at("decode"));
  factors.prompt = read_ranges(body.at("prompt"));
  factors.decode_attention = body.at("decode_attention").number(1 / kMaxFactor, kMaxFactor);
  factors.prompt_attention = body.at("prompt_attention").number(1 / kMaxFactor, kMaxFactor);
  if (body.has("link")) factors.link = body.at("link").number(1 / kMaxFactor, kMaxFactor);
  if (body.has("links")) {
    const JsonPlace links = body.at("links");
    corrected.link = links.at("link").text();
    corrected.network = links.at("network").text();
    corrected.link_factor = links.at("link_factor").number(1 / kMaxFactor, kMaxFactor);
  }
  const JsonPlace fitted_to = body.at("fitted_to");
  corrected.num_intervals = fitted_to.at("intervals").integer(0, kMaxCount);
  if (const JsonPlace until = fitted_to.at("until_s"); !until.is_null()) {
    corrected.until_s = until.number(0, kMaxStepNs);
  }
  corrected.fit.instant_ns = fitted_to.at("instant_ns").number(0, kMaxStepNs);
  corrected.fit.sum_error = fitted_to.at("sum_error").number();
  corrected.fit.mean_abs_error = fitted_to.at("mean_abs_error").number();
  return corrected;
}

std::unique_ptr<CostModel> make_corrected_cost_model(const CostModelFile& file,
                                                     const ModelConfig& model,
                                                     const HardwareSpec& hardware,
                                                     const CostModelConfig& config,
                                                     MakeBaseFn make_base) {
  CorrectedModel corrected = read_corrected(file);
  require_links(file, corrected, config);
  std::unique_ptr<CostModel> base;
  if (corrected.base) {
    base = make_base(*corrected.base, model, hardware, config);
  } else {
    if (hardware.memory_bytes == 0) {
      throw UnplacedConfigError("hardware", hardware.name + " is not in the catalogue, and " +
                                                file.name +
                                                " corrects its roofline; allowed: the "
                                                "path of a YAML file with this hardware");
    }
    if (file.model != model.name) {
      throw UnplacedConfigError("model", model.name + " is not the model that " + file.name +
                                             " was fitted to; allowed: " + file.model);
    }
    base = with_eager_passes(std::make_unique<RooflineCostModel>(model, hardware, config), model,
                             config);
  }
  return std::make_unique<CorrectedCostModel>(std::move(base), std::move(corrected.fit.factors));
}

}  // namespace metronome
