// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "core/base/math.h"
#include "core/base/real.h"

namespace metronome {
namespace {

constexpr std::size_t kMinRows = 12;
constexpr std::size_t kMaxMixedRows = 600;  // more rows only make the fit slower
constexpr std::size_t kMaxCheckedSteps = 4000;
constexpr double kMaxError = 0.25;
constexpr int kMaxSearchSteps = 600;
constexpr double kConverged = 1e-6;

// ---- Nelder and Mead's search for a minimum ----

using Point = std::vector<double>;
using Function = std::function<double(const Point&)>;

struct Vertex {
  Point at;
  double value;
};

Point between(const Point& from, const Point& to, double share) {
  Point point(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) point[i] = from[i] + share * (to[i] - from[i]);
  return point;
}

// Begins at `start` with a step of `reach` along each axis.
Vertex find_minimum(const Function& function, const Point& start, double reach) {
  std::vector<Vertex> simplex = {{start, function(start)}};
  for (std::size_t i = 0; i < start.size(); ++i) {
    Point point = start;
    point[i] += reach;
    simplex.push_back({point, function(point)});
  }
  const auto by_value = [](const Vertex& a, const Vertex& b) { return a.value < b.value; };
  for (int step = 0; step < kMaxSearchSteps; ++step) {
    std::stable_sort(simplex.begin(), simplex.end(), by_value);
    Vertex& worst = simplex.back();
    if (worst.value - simplex.front().value < kConverged * simplex.front().value) break;
    Point center(start.size(), 0);
    for (std::size_t k = 0; k + 1 < simplex.size(); ++k) {
      for (std::size_t i = 0; i < center.size(); ++i) {
        center[i] += simplex[k].at[i] / real(simplex.size() - 1);
      }
    }
    const auto vertex = [&](double share) {
      const Point point = between(center, worst.at, share);
      return Vertex{point, function(point)};
    };
    const Vertex reflected = vertex(-1);
    if (reflected.value < simplex.front().value) {
      const Vertex expanded = vertex(-2);
      worst = expanded.value < reflected.value ? expanded : reflected;
    } else if (reflected.value < simplex[simplex.size() - 2].value) {
      worst = reflected;
    } else {
      const Vertex contracted = vertex(reflected.value < worst.value ? -0.5 : 0.5);
      if (contracted.value < std::min(worst.value, reflected.value)) {
        worst = contracted;
      } else {
        for (std::size_t k = 1; k < simplex.size(); ++k) {
          simplex[k].at = between(simplex.front().at, simplex[k].at, 0.5);
          simplex[k].value = function(simplex[k].at);
        }
      }
    }
  }
  return *std::min_element(simplex.begin(), simplex.end(), by_value);
}

// Searches from several starts; each search is resumed once at its result. Parameters are
// logarithms.
Vertex search(const Function& function, const std::vector<Point>& starts) {
  Vertex best{{}, 0};
  for (const Point& start : starts) {
    const Vertex first = find_minimum(function, start, 0.5);
    const Vertex vertex = find_minimum(function, first.at, 0.2);
    if (best.at.empty() || vertex.value < best.value) best = vertex;
  }
  return best;
}

// Error of one fitted time; the search minimises the mean. Unlike with squares, the few rows
// outside the kernel's model do not dominate, such as contexts larger than a cache.
double error_of(double fitted_us, double measured_us) {
  return std::min(std::abs(log_of(fitted_us / measured_us)), kMaxError);
}

// ---- Rows of the tables ----

struct DecodeRow {
  double sequences, context, us;
};

std::vector<DecodeRow> unsplit_rows(const AttentionTable& table, const DeviceHeads& heads,
                                    std::int64_t num_multiprocessors) {
  const Grid& grid = table.decode;
  std::vector<DecodeRow> rows;
  for (std::size_t i = 0; i < grid.rows.size(); ++i) {
    if (grid.rows[i] * static_cast<double>(heads.kv) < split_limit_blocks(num_multiprocessors)) {
      continue;
    }
    for (std::size_t k = 0; k < grid.columns.size(); ++k) {
      // The model counts whole tiles.
      if (grid.columns[k] < kTileKeys) continue;
      rows.push_back({grid.rows[i], grid.columns[k], grid.cell(i, k)});
    }
  }
  return rows;
}

struct MixedRow {
  double tokens, history, sequences, context, us;
};

std::vector<MixedRow> some_mixed_rows(const AttentionTable& table) {
  std::vector<MixedRow> rows;
  for (std::size_t c = 0; c < table.mixed.x.size(); ++c) {
    const TimeFamily<Grid>& of_tokens = table.mixed.parts[c];
    for (std::size_t h = 0; h < of_tokens.x.size(); ++h) {
      const Grid& grid = of_tokens.parts[h];
      for (std::size_t i = 0; i < grid.rows.size(); ++i) {
        for (std::size_t k = 0; k < grid.columns.size(); ++k) {
          if (grid.columns[k] < kTileKeys) continue;
          rows.push_back(
              {table.mixed.x[c], of_tokens.x[h], grid.rows[i], grid.columns[k], grid.cell(i, k)});
        }
      }
    }
  }
  if (rows.size() <= kMaxMixedRows) return rows;
  std::vector<MixedRow> some;
  for (std::size_t i = 0; i < kMaxMixedRows; ++i) {
    some.push_back(rows[i * rows.size() / kMaxMixedRows]);
  }
  return some;
}

void add_decodes(double count, double context, BlockLaunch& launch) {
  for (double i = 0; i < count; ++i) launch.add_decode(context);
}

}  // namespace

std::optional<FillingFit> fit_filling(const AttentionTable& table, const DeviceHeads& heads,
                                      std::int64_t num_multiprocessors) {
  const std::vector<DecodeRow> decodes = unsplit_rows(table, heads, num_multiprocessors);
  const std::vector<MixedRow> mixed = some_mixed_rows(table);
  if (decodes.size() < kMinRows || mixed.size() < kMinRows) return std::nullopt;
  FillingFit fit;
  fit.filling.num_multiprocessors = num_multiprocessors;
  fit.num_decode_rows = decodes.size();
  fit.num_mixed_rows = mixed.size();

  // Tile throughput of all multiprocessors together, from the row with the most tiles.
  const DecodeRow& largest =
      *std::max_element(decodes.begin(), decodes.end(), [](const DecodeRow& a, const DecodeRow& b) {
        return a.sequences * a.context < b.sequences * b.context;
      });
  const double tiles = largest.sequences * static_cast<double>(heads.kv) * largest.context /
                       kTileKeys / static_cast<double>(num_multiprocessors);
  const double busy = log_of(largest.us / tiles);
  const auto mixed_times = [](const Point& point) {
    return BlockTimes{exp_of(point[0]), exp_of(point[1]), exp_of(point[2]), exp_of(point[3]),
                      exp_of(point[4])};
  };
  BlockLaunch launch(num_multiprocessors);
  const auto mixed_error = [&](const Point& point) {
    const BlockTimes times = mixed_times(point);
    double sum = 0;
    for (const MixedRow& row : mixed) {
      launch.clear();
      add_decodes(row.sequences, row.context, launch);
      launch.add_chunk(row.tokens, row.history);
      sum += error_of(launch.time_us(heads.query, times), row.us);
    }
    return sum / real(mixed.size());
  };
  // Heads of a group share their reads through a cache.
  const double half = busy - log_of(2.0);
  const double third = busy - log_of(3.0);
  const Vertex best = search(mixed_error, {{log_of(4.0), third, third, log_of(1.0), log_of(0.3)},
                                           {log_of(4.0), half, half, log_of(1.0), log_of(0.3)}});
  fit.filling.mixed = mixed_times(best.at);
  fit.mixed_error = best.value;

  // Equal decodes in powers of two hardly ever leave multiprocessors idle. They do not show the
  // speed of a single block, so tile_us is taken from the mixed fit.
  const auto decode_times = [&](const Point& point) {
    return BlockTimes{exp_of(point[0]), fit.filling.mixed.tile_us, exp_of(point[1]),
                      exp_of(point[2]), 0};
  };
  const auto decode_error = [&](const Point& point) {
    const BlockTimes times = decode_times(point);
    double sum = 0;
    for (const DecodeRow& row : decodes) {
      const auto blocks = static_cast<std::int64_t>(row.sequences) * heads.kv;
      sum += error_of(equal_blocks_us(blocks, row.context, num_multiprocessors, times), row.us);
    }
    return sum / real(decodes.size());
  };
  std::vector<Point> starts;
  for (const double launch_us : {5.0, 20.0}) {
    for (const double tiles_of_block : {0.2, 0.6}) {
      starts.push_back({log_of(launch_us), busy, log_of(tiles_of_block)});
    }
  }
  const Vertex decode = search(decode_error, starts);
  fit.filling.decode = decode_times(decode.at);
  fit.decode_error = decode.value;
  return fit;
}

bool FillingChecks::helps() const {
  const auto error = [](const FillingCheck& check) {
    return real(check.num_steps) * (check.mean_error - check.mean_error_if_equal);
  };
  return error(decode) + error(mixed) <= 0;
}

FillingChecks check_filling(const BlockFilling& filling, std::span<const UnequalStep> steps,
                            const DeviceHeads& heads) {
  FillingChecks checks;
  BlockLaunch launch(filling.num_multiprocessors);
  const std::size_t stride = std::max<std::size_t>(steps.size() / kMaxCheckedSteps, 1);
  for (std::size_t i = 0; i < steps.size(); i += stride) {
    const UnequalStep& step = steps[i];
    const double num = step.num_long + step.num_short;
    const bool is_mixed = step.chunk > 0;
    const double blocks = num * static_cast<double>(heads.kv);
    if (!is_mixed && blocks < split_limit_blocks(filling.num_multiprocessors)) continue;
    const BlockTimes& times = is_mixed ? filling.mixed : filling.decode;
    const std::int64_t num_heads = is_mixed ? heads.query : heads.kv;
    const double mean =
        (step.num_long * step.long_context + step.num_short * step.short_context) / num;
    launch.clear();
    add_decodes(num, mean, launch);
    if (is_mixed) launch.add_chunk(step.chunk, step.history);
    const double equal_us = launch.time_us(num_heads, times);
    launch.clear();
    add_decodes(step.num_long, step.long_context, launch);
    add_decodes(step.num_short, step.short_context, launch);
    if (is_mixed) launch.add_chunk(step.chunk, step.history);
    const double predicted = launch.time_us(num_heads, times) / equal_us;
    FillingCheck& check = is_mixed ? checks.mixed : checks.decode;
    ++check.num_steps;
    check.mean_error += std::abs(predicted / step.ratio - 1);
    check.mean_error_if_equal += std::abs(1 / step.ratio - 1);
  }
  for (FillingCheck* check : {&checks.decode, &checks.mixed}) {
    if (check->num_steps == 0) continue;
    check->mean_error /= real(check->num_steps);
    check->mean_error_if_equal /= real(check->num_steps);
  }
  return checks;
}

}  // namespace metronome
