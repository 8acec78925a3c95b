// SPDX-License-Identifier: Apache-2.0
// Which modules of a model are stored in which format, as a published file says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/model_modules.h"

namespace metronome {

struct StoredFormat {
  WeightFormat format = WeightFormat::Plain;
  std::int64_t int4_group_size = 128;  // as in ModelConfig
  // Of a weight with its share of the scales; empty: those of the format.
  std::optional<double> bytes = {};
  double codebook_bytes = 0;  // of each matrix, beside its weights
};

class FormatRules {
 public:
  explicit FormatRules(ModuleList::Names names) : plain_(names), named_(names) {}

  std::optional<StoredFormat> otherwise;  // of linear modules that no entry names; empty: plain
  bool stores_tables = false;             // `otherwise` is that of embeddings and the head, too

  // These two answer as ModuleList::add does. Modules left plain come before all others.
  bool leave_plain(const std::string& entry) { return plain_.add(entry); }
  bool store(const std::string& entry, const std::optional<StoredFormat>& format) {
    formats_.push_back(format);
    return named_.add(entry);
  }

  // Sets linear_format, mlp_format, expert_format, int4_group_size and module_formats of a model
  // without a shape_error().
  void apply(ModelConfig& model) const;

 private:
  StoredFormat format_of(const ModelModule& module) const;

  ModuleList plain_;
  ModuleList named_;
  std::vector<std::optional<StoredFormat>> formats_;  // of the entries of named_
};

}  // namespace metronome
