// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_names.h"

#include <vector>

#include "core/base/json.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

// Keeps the paths of the keys of objects. What is inside of lists has none.
class TraceNames::Collector final : public JsonEvents {
 public:
  explicit Collector(TraceNames& names) : names_(names.names_) {}

  void null() override {}
  void boolean(bool) override {}
  void integer(std::int64_t value) override { number(static_cast<double>(value)); }
  void unsigned_integer(std::uint64_t value) override { number(static_cast<double>(value)); }
  void number(double value) override {
    if (list_depth_ == 0 && !path_.empty()) names_[path_] = value;
  }
  // A gateway's log may write numbers as texts; their size is not asked for.
  void string(std::string_view) override {}
  void key(std::string_view name) override {
    if (list_depth_ > 0) return;
    path_.resize(begins_.empty() ? 0 : begins_.back());
    path_ += name;
    names_.try_emplace(path_);
  }
  void begin_object() override {
    if (list_depth_ > 0) return;
    if (!path_.empty()) path_ += '.';
    begins_.push_back(path_.size());
  }
  void end_object() override {
    if (list_depth_ > 0 || begins_.empty()) return;
    path_.resize(begins_.back());
    begins_.pop_back();
  }
  void begin_array() override { ++list_depth_; }
  void end_array() override { --list_depth_; }

 private:
  std::map<std::string, std::optional<double>, std::less<>>& names_;
  std::string path_;
  std::vector<std::size_t> begins_;  // of the paths inside of the objects that are open
  int list_depth_ = 0;
};

TraceNames::TraceNames(std::string_view line, TraceShape shape) {
  if (shape == TraceShape::Csv) {
    for_each_csv_field(line, [this](std::size_t, std::string_view column) {
      names_.try_emplace(std::string(column));
    });
    return;
  }
  Collector collector(*this);
  try {
    parse_json(line, collector);
  } catch (const JsonError&) {
    broken_ = line;
  }
}

bool TraceNames::has(std::string_view name) const {
  if (names_.find(name) != names_.end()) return true;
  return broken_.find("\"" + std::string(name) + "\"") != std::string_view::npos;
}

std::optional<double> TraceNames::number(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : found->second;
}

}  // namespace metronome
