// SPDX-License-Identifier: Apache-2.0
#include "study/bench/bench_products.h"

#include <algorithm>
#include <charconv>
#include <fmt/core.h>
#include <iostream>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"
#include "gpu/plan/cuda_config.h"
#include "reports/terminal/text.h"
#include "study/bench/bench_cases.h"
#include "system/file_writer.h"
#include "system/progress.h"

namespace metronome {
namespace {

using Kind = ProductKernel::Kind;

bool is_ours(const TimedKernel& timed) {
  return timed.kernel.kind == Kind::DecodeGemm || timed.kernel.kind == Kind::PrefillGemm;
}

// nullptr if it was not measured or cannot compute the product.
const TimedKernel* find_kind(const ProductPoint& point, Kind kind) {
  for (const TimedKernel& timed : point.kernels) {
    if (timed.kernel.kind == kind) return &timed;
  }
  return nullptr;
}

const TimedKernel* find_chosen(const ProductPoint& point) {
  for (const TimedKernel& timed : point.kernels) {
    if (timed.is_chosen) return &timed;
  }
  return nullptr;
}

const TimedKernel* find_best(const ProductPoint& point) {
  const TimedKernel* best = nullptr;
  for (const TimedKernel& timed : point.kernels) {
    if (is_ours(timed) && (best == nullptr || timed.us < best->us)) best = &timed;
  }
  return best;
}

std::string us_text(const TimedKernel* timed) {
  return timed == nullptr ? "-" : fixed_text(timed->us, 2);
}

std::string ours_name(const TimedKernel* timed) {
  if (timed == nullptr) return "-";
  return timed->kernel.kind == Kind::PrefillGemm ? tile_name(timed->kernel.tile)
                                                 : kernel_name(timed->kernel.kind);
}

std::vector<std::string> row_of(const ProductPoint& point) {
  const TimedKernel* const invariant = find_kind(point, Kind::CublasLtInvariant);
  const TimedKernel* const chosen = find_chosen(point);
  const TimedKernel* const best = find_best(point);
  const bool has_ratio = best != nullptr && invariant != nullptr;
  return {point.product.name,
          grouped_text(std::int64_t{point.num_tokens}),
          fixed_text(point.floor_us, 2),
          us_text(find_kind(point, Kind::CublasLt)),
          us_text(invariant),
          us_text(chosen),
          ours_name(chosen),
          us_text(best),
          ours_name(best),
          has_ratio ? fixed_text(best->us / invariant->us, 2) : "-"};
}

Json to_json(const TimedKernel& timed) {
  Json json = {{"kernel", kernel_name(timed.kernel.kind)}, {"us", timed.us}};
  if (timed.kernel.kind == Kind::PrefillGemm) {
    json["rows"] = timed.kernel.tile.rows;
    json["columns"] = timed.kernel.tile.columns;
    json["cluster"] = timed.kernel.tile.cluster;
    json["predicted_us"] = timed.predicted_us;
    json["chosen"] = timed.is_chosen;
  }
  return json;
}

Json to_json(const ProductPoint& point) {
  Json json = {{"product", point.product.name},
               {"tokens", point.num_tokens},
               {"n", point.product.n},
               {"k", point.product.k},
               {"has_gates", point.product.has_gates},
               {"adds_output", point.product.adds_output},
               {"floor_us", point.floor_us},
               {"bound", point.is_memory_bound ? "memory" : "arithmetic"},
               {"kernels", Json::array()}};
  for (const TimedKernel& timed : point.kernels) json["kernels"].push_back(to_json(timed));
  return json;
}

void hand_over(const ProductReport& report, const std::string& file) {
  std::cout << products_text(report);
  if (!file.empty()) replace_file(file, products_json(report));
}

}  // namespace

std::vector<std::int32_t> parse_tokens(const std::string& text) {
  std::vector<std::int32_t> counts;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  for (bool is_last = false; !is_last;) {
    std::int32_t count = 0;
    const auto [behind, error] = std::from_chars(begin, end, count);
    is_last = behind == end;
    const bool is_good = error == std::errc() && (is_last || *behind == ',') &&
                         count > (counts.empty() ? 0 : counts.back()) &&
                         count <= kMostProductTokens;
    if (!is_good) {
      throw UsageError(
          fmt::format("--tokens: '{}' is not a list of token counts; allowed: ascending counts "
                      "from 1 to {}, such as 64,512",
                      printable(text), kMostProductTokens));
    }
    counts.push_back(count);
    if (!is_last) begin = behind + 1;
  }
  return counts;
}

std::string products_text(const ProductReport& report) {
  std::string text = bench_head_text(report.model, report.device, report.rates);
  std::vector<std::vector<std::string>> rows = {{"product", "tokens", "floor us", "cublaslt us",
                                                 "invariant us", "chosen us", "chosen tile",
                                                 "best us", "best of ours", "best/invariant"}};
  for (const ProductPoint& point : report.points) rows.push_back(row_of(point));
  text += aligned_rows(rows);
  for (const SkippedProduct& skipped : report.skipped) {
    text += skipped.what + ": skipped, " + skipped.why + "\n";
  }
  return text;
}

std::string products_json(const ProductReport& report) {
  Json json = {{"metronome_products", 1},
               {"model", report.model.name},
               {"shape", Json::parse(shape_json(report.model))},
               {"device", report.device},
               {"early_launches", report.has_early_launches},
               {"repeats", report.repeats},
               {"copy_bytes_per_s", report.rates.copy_bytes_per_s},
               {"matrix_flops_per_s", report.rates.matrix_flops_per_s},
               {"points", Json::array()},
               {"skipped", Json::array()}};
  for (const ProductPoint& point : report.points) json["points"].push_back(to_json(point));
  for (const SkippedProduct& skipped : report.skipped) {
    json["skipped"].push_back({{"what", skipped.what}, {"why", skipped.why}});
  }
  return json.dump(2) + "\n";
}

void bench_products(const ProductsCommand& command, const ProductBenchFn& bench) {
  if (!bench) throw UsageError(kNoCudaBench);
  Scenario scenario;
  scenario.model = command.model;
  scenario.weights = Weights::Random;
  scenario.backends.edit<CudaConfig>().device = command.device;
  scenario.backends.edit<CudaConfig>().early_launches = command.has_early_launches;
  // The report keeps earlier measurements if a later kernel fails.
  ProductReport report;
  try {
    bench(scenario, command.bench, [&report](const ProductReport& so_far) {
      report = so_far;
      throw_if_interrupted();
    });
  } catch (...) {
    if (!report.points.empty()) hand_over(report, command.json);
    throw;
  }
  hand_over(report, command.json);
}

}  // namespace metronome
