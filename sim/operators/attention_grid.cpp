// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/attention_grid.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <set>
#include <utility>

#include "core/base/math.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/engine/kernel_rules.h"
#include "sim/operators/operator_rows.h"

namespace metronome {
namespace {

constexpr double kOddShare = 0.2;  // of cells; above, the rule of more heads is worth a remark

using Heads = std::pair<std::int64_t, std::int64_t>;  // query heads, KV heads
using Table = std::vector<const AttentionCells*>;

std::string heads_text(const Heads& heads) {
  return fmt::format("{}/{} heads", heads.first, heads.second);
}

// The tables of one origin, window and KV type. Of prompts, those computed in bfloat16 if any.
Table table_of(const std::vector<AttentionCells>& all, const TableOrigin& origin,
               const AttentionWanted& wanted, const std::string& kv_dtype, AttentionPhase phase) {
  Table table;
  for (const AttentionCells& cells : all) {
    const bool fits =
        cells.origin == origin && cells.window == wanted.window && cells.kv_dtype == kv_dtype;
    if (fits) table.push_back(&cells);
  }
  const auto is_other = [](const AttentionCells* cells) { return cells->dtype != "bfloat16"; };
  const bool has_bfloat16 = !std::all_of(table.begin(), table.end(), is_other);
  if (phase == AttentionPhase::Prompts && has_bfloat16) std::erase_if(table, is_other);
  return table;
}

// Tables may have several kernels side by side. Of an engine that does not say which it takes, the
// fastest counts.
void keep_own_kernel(Table& table, const OperatorMeta& meta, const Heads& heads) {
  if (table.empty()) return;
  const KernelRules& rules = find_kernel_rules(table.front()->origin.engine);
  if (rules.attention_kernels == nullptr) return;
  for (const std::string_view kernel : rules.attention_kernels(meta.sm_version)) {
    Table chosen;
    bool has_heads = false;
    for (const AttentionCells* cells : table) {
      if (cells->kernel != kernel) continue;
      chosen.push_back(cells);
      has_heads = has_heads || Heads(cells->heads, cells->kv_heads) == heads;
    }
    if (!has_heads) continue;
    table = std::move(chosen);
    return;
  }
}

// The least over kernels.
Cells cells_of(const Table& table, const Heads& heads) {
  Cells least;
  for (const AttentionCells* cells : table) {
    if (Heads(cells->heads, cells->kv_heads) != heads) continue;
    for (const auto& [place, us] : cells->us) keep_least(us, least[place]);
  }
  return least;
}

// Of the heads in the table, the nearest with the same group size, or else as many KV heads.
std::optional<Heads> nearest_heads(const Table& table, const Heads& wanted) {
  std::set<Heads> same_group;
  std::set<Heads> same_kv;
  for (const AttentionCells* cells : table) {
    const Heads heads(cells->heads, cells->kv_heads);
    if (heads.first * wanted.second == heads.second * wanted.first) same_group.insert(heads);
    if (heads.second == wanted.second) same_kv.insert(heads);
  }
  const std::set<Heads>& candidates = same_group.empty() ? same_kv : same_group;
  if (candidates.empty()) return std::nullopt;
  const auto distance = [&](const Heads& heads) {
    return std::abs(log_of(real(heads.first) / real(wanted.first)));
  };
  return *std::min_element(
      candidates.begin(), candidates.end(),
      [&](const Heads& a, const Heads& b) { return distance(a) < distance(b); });
}

Grid cleaned_grid(Cells cells, AttentionPhase phase, std::size_t& num_outliers) {
  const bool is_prompts = phase == AttentionPhase::Prompts;
  Grid grid = grid_of(cells, is_prompts);
  if (!is_prompts) {  // the table counts the positions before the decoded token
    for (double& context : grid.columns) context += 1;
  }
  num_outliers = lower_outliers(grid);
  raise_to_earlier(grid);
  return grid;
}

std::vector<Grid> with_more_heads(const Table& table, const Heads& heads, AttentionPhase phase) {
  std::vector<Grid> grids;
  std::size_t num_outliers = 0;  // of heads that are not wanted
  for (const std::int64_t factor : {2, 4, 8}) {
    Cells cells = cells_of(table, {factor * heads.first, factor * heads.second});
    if (cells.empty()) break;
    grids.push_back(cleaned_grid(std::move(cells), phase, num_outliers));
  }
  return grids;
}

}  // namespace

std::optional<Grid> attention_grid(const OperatorTables& tables, AttentionPhase phase,
                                   const AttentionWanted& wanted,
                                   std::vector<std::string>& remarks) {
  const bool is_prompts = phase == AttentionPhase::Prompts;
  const std::vector<AttentionCells>& all = is_prompts ? tables.context : tables.decode;
  const Heads heads(wanted.heads, wanted.kv_heads);
  const std::string name =
      std::string("attention of ") + (is_prompts ? "prompts" : "decodes") +
      (wanted.window > 0 ? fmt::format(" with window {}", wanted.window) : "") + ": ";
  std::vector<TableOrigin> origins;
  for (const AttentionCells& cells : all) {
    if (std::find(origins.begin(), origins.end(), cells.origin) == origins.end()) {
      origins.push_back(cells.origin);
    }
  }
  for (const std::string& kv_dtype :
       {wanted.kv_dtype, std::string(wanted.kv_dtype == "fp8" ? "bfloat16" : "fp8")}) {
    for (const TableOrigin& origin : origins) {
      Table table = table_of(all, origin, wanted, kv_dtype, phase);
      keep_own_kernel(table, tables.meta, heads);
      const std::optional<Heads> nearest =
          cells_of(table, heads).empty() ? nearest_heads(table, heads) : heads;
      if (!nearest) continue;
      if (origin.engine != tables.meta.engine) remarks.push_back(name + "of " + origin.text());
      if (kv_dtype != wanted.kv_dtype) remarks.push_back(name + "with KV of " + kv_dtype);
      std::size_t num_outliers = 0;
      Grid grid = cleaned_grid(cells_of(table, *nearest), phase, num_outliers);
      if (num_outliers > 0) {
        remarks.push_back(
            fmt::format("{}cells that took half as long again as larger ones count as those: {}",
                        name, num_outliers));
      }
      if (*nearest != heads) {
        const double factor = real(heads.first) / real(nearest->first);
        for (double& us : grid.us) us *= factor;
        remarks.push_back(name + heads_text(heads) + " are " + heads_text(*nearest) + " times " +
                          fixed_text(factor, 2));
        return grid;
      }
      const double share = lower_to_more_heads(grid, with_more_heads(table, heads, phase));
      if (share > kOddShare) {
        remarks.push_back(name + heads_text(heads) + " took longer than more heads in " +
                          percent_text(share, 0) + " of cells; the shorter time counts");
      }
      return grid;
    }
  }
  return std::nullopt;
}

}  // namespace metronome
