// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <string>

#include "core/metrics/figures.h"

namespace metronome {
namespace {

std::size_t place_of(std::string_view key) {
  return static_cast<std::size_t>(&figure(key) - all_figures().data());
}

}  // namespace

double FigureValue::as_number() const {
  switch (kind) {
    case Kind::Count: return static_cast<double>(count);
    case Kind::Number: return number;
    case Kind::Duration: return to_ms(count);
    case Kind::Absent:
    case Kind::Null:
    case Kind::List: break;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

FigureValues::FigureValues(const Summary& summary, const RunFacts& facts) {
  values_.reserve(all_figures().size());
  for (const Figure& one : all_figures()) values_.push_back(one.value(summary, facts));
}

const FigureValue& FigureValues::operator[](std::size_t i) const {
  static const FigureValue absent;
  return values_.empty() ? absent : values_[i];
}

void FigureValues::set(std::size_t i, FigureValue value) {
  values_.resize(all_figures().size());
  values_[i] = std::move(value);
}

void FigureValues::set(std::string_view key, double value) {
  set(place_of(key), {.kind = FigureValue::Kind::Number, .number = value});
}

double FigureValues::number(std::string_view key) const {
  return (*this)[place_of(key)].as_number();
}

Distribution FigureValues::distribution(std::string_view name) const {
  Distribution found;
  for (const Statistic& statistic : statistics()) {
    if (statistic.name == "median") continue;  // p50 again
    found.*statistic.member = number(std::string(statistic.name) + "_" + std::string(name) + "_ms");
  }
  return found;
}

}  // namespace metronome
