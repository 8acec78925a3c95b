// SPDX-License-Identifier: Apache-2.0
#include "sim/fitted/fitted_file.h"

#include <fmt/core.h>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "sim/cost/pass_cost.h"

namespace metronome {
namespace {

constexpr double kMaxFeature = 1e18;

template <class Owner, class Value>
struct Field {
  const char* key;
  Value Owner::*value;
};

constexpr Field<FittedForm, double> kCoefficients[] = {
    {"graph", &FittedForm::graph},         {"eager", &FittedForm::eager},
    {"prefill", &FittedForm::prefill},     {"pair", &FittedForm::pair},
    {"chunk", &FittedForm::chunk},         {"decode", &FittedForm::decode},
    {"decode_kv", &FittedForm::decode_kv}, {"row", &FittedForm::row}};

constexpr const char* kHeadKey = "head";  // absent in older files

constexpr Field<StepFeatures, double> kFeatures[] = {
    {"tokens", &StepFeatures::tokens},
    {"pairs", &StepFeatures::pairs},
    {"prefill_chunks", &StepFeatures::prefill_chunks},
    {"decodes", &StepFeatures::decodes},
    {"decode_kv", &StepFeatures::decode_kv},
    {"rows", &StepFeatures::rows}};

// The model fields that step times depend on.
constexpr Field<ModelConfig, std::int64_t> kShape[] = {
    {"n_layers", &ModelConfig::n_layers},
    {"hidden_dim", &ModelConfig::hidden_dim},
    {"n_heads", &ModelConfig::n_heads},
    {"n_kv_heads", &ModelConfig::n_kv_heads},
    {"head_dim", &ModelConfig::head_dim},
    {"ffn_dim", &ModelConfig::ffn_dim},
    {"n_experts", &ModelConfig::n_experts},
    {"n_experts_per_token", &ModelConfig::n_experts_per_token},
    {"expert_ffn_dim", &ModelConfig::expert_ffn_dim},
    {"n_dense_layers", &ModelConfig::n_dense_layers},
    {"vocab_size", &ModelConfig::vocab_size},
    {"sliding_window", &ModelConfig::sliding_window},
    {"global_layer_interval", &ModelConfig::global_layer_interval},
    {"bytes_per_weight", &ModelConfig::bytes_per_weight},
    {"bytes_per_kv_element", &ModelConfig::bytes_per_kv_element}};

Json form_json(const FittedForm& form) {
  Json json;
  for (const auto& [key, value] : kCoefficients) json[key] = form.*value;
  json[kHeadKey] = form.head;
  for (const FittedForm::Piece& piece : form.tokens) {
    json["tokens"].push_back({piece.above, piece.ns, piece.ns_per_token});
  }
  json["max_graph_decodes"] = form.max_graph_decodes ? Json(*form.max_graph_decodes) : Json();
  return json;
}

FittedForm read_form(const JsonPlace& place) {
  FittedForm form;
  for (const auto& [key, value] : kCoefficients) form.*value = place.at(key).number(0, kMaxStepNs);
  if (place.has(kHeadKey)) form.head = place.at(kHeadKey).number(0, kMaxStepNs);
  place.at("tokens").for_each([&](const JsonPlace& entry) {
    std::vector<double> numbers;
    entry.for_each(
        [&](const JsonPlace& number) { numbers.push_back(number.number(0, kMaxStepNs)); });
    if (numbers.size() != 3) entry.fail("is not a list of three numbers; allowed: three");
    const bool is_first = form.tokens.empty();
    if (is_first ? numbers[0] != 0 : numbers[0] <= form.tokens.back().above) {
      entry.fail("begins at " + Json(numbers[0]).dump() +
                 "; allowed: 0 first, then more than the previous piece");
    }
    form.tokens.push_back({numbers[0], numbers[1], numbers[2]});
  });
  if (form.tokens.empty()) place.at("tokens").fail("is empty");
  const JsonPlace graph = place.at("max_graph_decodes");
  if (!graph.is_null()) form.max_graph_decodes = graph.integer(0, kMaxCount);
  return form;
}

Json range_json(const std::optional<FeatureRange>& range) {
  Json json;
  if (!range) return json;
  for (const auto& [key, value] : kFeatures) json[key] = {range->min.*value, range->max.*value};
  return json;
}

std::optional<FeatureRange> read_range(const JsonPlace& place) {
  if (place.is_null()) return std::nullopt;
  FeatureRange range;
  for (const auto& [key, value] : kFeatures) {
    std::vector<double> limits;
    const JsonPlace entry = place.at(key);
    entry.for_each(
        [&](const JsonPlace& number) { limits.push_back(number.number(0, kMaxFeature)); });
    if (limits.size() != 2 || limits[0] > limits[1])
      entry.fail("is not a list of minimum and maximum; allowed: two numbers in order");
    range.min.*value = limits[0];
    range.max.*value = limits[1];
  }
  return range;
}

Json errors_json(const std::vector<RegimeError>& errors) {
  Json json = Json::array();
  for (const RegimeError& error : errors) {
    json.push_back({{"regime", error.regime},
                    {"steps", error.num_steps},
                    {"mean_ms", error.mean_ms},
                    {"mean_error", error.mean_error},
                    {"mean_abs_error", error.mean_abs_error},
                    {"p95_abs_error", error.p95_abs_error},
                    {"worst_error", error.worst_error},
                    {"worst_step", error.worst_step}});
  }
  return json;
}

std::vector<RegimeError> read_errors(const JsonPlace& place) {
  std::vector<RegimeError> errors;
  place.for_each([&](const JsonPlace& entry) {
    errors.push_back({.regime = entry.at("regime").text(),
                      .num_steps = entry.at("steps").integer(0, kMaxCount),
                      .mean_ms = entry.at("mean_ms").number(),
                      .mean_error = entry.at("mean_error").number(),
                      .mean_abs_error = entry.at("mean_abs_error").number(),
                      .p95_abs_error = entry.at("p95_abs_error").number(),
                      .worst_error = entry.at("worst_error").number(),
                      .worst_step = entry.at("worst_step").integer(0, kMaxCount)});
  });
  return errors;
}

Json scatter_json(const std::vector<StepScatter>& scatter) {
  Json json = Json::array();
  for (const StepScatter& regime : scatter) {
    json.push_back({{"regime", regime.regime.name},
                    {"order", regime.regime.order},
                    {"ratios", regime.ratios}});
  }
  return json;
}

std::vector<StepScatter> read_scatter(const JsonPlace& place) {
  std::vector<StepScatter> scatter;
  place.for_each([&](const JsonPlace& entry) {
    StepScatter regime{{entry.at("order").count(), entry.at("regime").text()}, {}};
    entry.at("ratios").for_each([&](const JsonPlace& ratio) {
      const double value = ratio.number(0, kMaxStepNs);
      if (!regime.ratios.empty() && value < regime.ratios.back()) ratio.fail("is out of order");
      regime.ratios.push_back(value);
    });
    if (regime.ratios.size() != std::size(StepScatter::kShares)) {
      entry.at("ratios").fail(
          fmt::format("is not a list of {} numbers", std::size(StepScatter::kShares)));
    }
    if (!scatter.empty() && !(scatter.back().regime < regime.regime)) {
      entry.at("order").fail("is out of order");
    }
    scatter.push_back(std::move(regime));
  });
  return scatter;
}

void check_shape(const CostModelFile& file, const ModelConfig& model) {
  const JsonPlace shape = JsonPlace(file.name + ": " + file.body_place, *file.body).at("shape");
  for (const auto& [key, value] : kShape) {
    const std::int64_t measured = shape.at(key).integer(0, kMaxCount);
    if (measured == model.*value) continue;
    shape.at(key).fail(fmt::format("is {}, but {} has {}; allowed: the measured model, {}",
                                   measured, model.name, model.*value, file.model));
  }
}

}  // namespace

Json fitted_body(const FittedModel& fitted, const ModelConfig& model) {
  Json body;
  for (const auto& [key, value] : kShape) body["shape"][key] = model.*value;
  body["form_ns"] = form_json(fitted.form);
  body["tokens_shape"] = fitted.tokens_shape;
  body["decode_range"] = range_json(fitted.decode_range);
  body["prefill_range"] = range_json(fitted.prefill_range);
  body["host_gap_ns"] = fitted.host_gap_ns ? Json(*fitted.host_gap_ns) : Json();
  body["host_gap_chunk_ns"] = fitted.host_gap_chunk_ns;
  body["steps"] = fitted.num_steps;
  body["hiccups"] = fitted.num_hiccups;
  body["knows_contexts"] = fitted.knows_contexts;
  body["held_out_errors"] = errors_json(fitted.errors);
  body["scatter"] = scatter_json(fitted.scatter);
  return body;
}

FittedModel read_fitted(const CostModelFile& file) {
  const JsonPlace body(file.name + ": " + file.body_place, *file.body);
  FittedModel fitted;
  fitted.form = read_form(body.at("form_ns"));
  fitted.tokens_shape = body.at("tokens_shape").text();
  fitted.decode_range = read_range(body.at("decode_range"));
  fitted.prefill_range = read_range(body.at("prefill_range"));
  const JsonPlace gap = body.at("host_gap_ns");
  if (!gap.is_null()) fitted.host_gap_ns = gap.number(0, kMaxStepNs);
  if (body.has("host_gap_chunk_ns")) {  // absent in older files
    fitted.host_gap_chunk_ns = body.at("host_gap_chunk_ns").number(0, kMaxStepNs);
  }
  fitted.num_steps = body.at("steps").integer(0, kMaxCount);
  fitted.num_hiccups = body.at("hiccups").integer(0, kMaxCount);
  fitted.knows_contexts = body.at("knows_contexts").truth();
  fitted.errors = read_errors(body.at("held_out_errors"));
  fitted.scatter = read_scatter(body.at("scatter"));
  return fitted;
}

namespace {

// The steps of a fit include their collectives.
void require_own_link(const CostModelFile& file, const CostModelConfig& config) {
  const auto refuse = [&file](const char* key, bool is_given) {
    if (!is_given) return;
    throw UnplacedConfigError(key, "has no effect: the steps that " + file.name +
                                       " was fitted to include collectives; allowed: leave the "
                                       "key out");
  };
  refuse("cost_model.link", !config.link.empty());
  refuse("cost_model.network", !config.network.empty());
  refuse("cost_model.link_factor", config.link_factor != 1);
}

}  // namespace

std::unique_ptr<CostModel> make_fitted_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config) {
  check_shape(file, model);
  if (config.batching != Batching::Ragged) {
    throw UnplacedConfigError("cost_model.batching",
                              "padded cannot be predicted from the steps that " + file.name +
                                  " was fitted to; allowed: ragged");
  }
  if (config.gather_kv) {
    throw UnplacedConfigError("cost_model.gather_kv",
                              "true cannot be predicted from the steps that " + file.name +
                                  " was fitted to; allowed: false");
  }
  require_own_link(file, config);
  FittedModel fitted = read_fitted(file);
  if (!fitted.prefill_range) {
    throw UnplacedConfigError("cost_model.file",
                              file.name +
                                  " was fitted to steps without prompts, and says nothing "
                                  "of their times; allowed: a fit to steps with prompts");
  }
  return std::make_unique<FittedCostModel>(std::move(fitted), model, hardware, config);
}

}  // namespace metronome
