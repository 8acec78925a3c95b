// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_tables.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/config/catalogue.h"

namespace metronome {
namespace {

const Curve* find_layer(const std::vector<LayerTimes>& layers, const std::string& name) {
  const LayerTimes* layer = find_entry(layers, name);
  return layer == nullptr ? nullptr : &layer->us;
}

}  // namespace

double AttentionTable::decode_us(double sequences, double context, std::size_t begin,
                                 std::size_t end, bool& is_outside) const {
  METRONOME_CHECK(begin < end && end <= decode.rows.size(), "a side has at least one row");
  const std::vector<double>& rows = decode.rows;
  if (sequences > rows.back()) is_outside = true;
  if (end - begin == 1) {
    // The same total of keys and values in as many sequences as were measured.
    return decode.row_at(begin, context * sequences / rows[begin], is_outside);
  }
  std::size_t high = begin + 1;
  while (high + 1 < end && rows[high] <= sequences) ++high;
  const double share = (sequences - rows[high - 1]) / (rows[high] - rows[high - 1]);
  const double low_us = decode.row_at(high - 1, context, is_outside);
  const double high_us = decode.row_at(high, context, is_outside);
  if (share >= 0) {
    return interpolate({0, 1, share}, [&](std::size_t i) { return i == 0 ? low_us : high_us; });
  }
  // Fewer sequences than were measured on this side: extrapolate, but at least in proportion.
  return std::max(low_us * (1 - share) + high_us * share, low_us * sequences / rows[high - 1]);
}

double AttentionTable::prefill_us(double tokens, double history, bool& is_outside) const {
  const double largest = prefill.x.back();
  const double us = prefill.at(std::min(tokens, largest), is_outside, [&](const Curve& of_tokens) {
    return of_tokens.at(history, is_outside);
  });
  if (tokens <= largest) return us;
  is_outside = true;
  const auto pairs = [history](double n) { return n * (history + n / 2); };
  return us * (pairs(tokens) / pairs(largest));
}

double AttentionTable::mixed_us(double tokens, double history, double sequences, double context,
                                bool& is_outside) const {
  if (mixed.empty()) {
    return prefill_us(tokens, history, is_outside) +
           decode_us(sequences, context, 0, decode.rows.size(), is_outside);
  }
  const double largest = mixed.x.back();
  if (tokens > largest) {
    is_outside = true;
    const double more =
        prefill_us(tokens, history, is_outside) - prefill_us(largest, history, is_outside);
    return mixed_us(largest, history, sequences, context, is_outside) + std::max(more, 0.0);
  }
  return mixed.at(tokens, is_outside, [&](const TimeFamily<Grid>& of_tokens) {
    return of_tokens.at(history, is_outside, [&](const Grid& beside) {
      return beside.at(sequences, context, is_outside);
    });
  });
}

double ProfileTables::experts_us(double tokens, double activated, bool& is_outside) const {
  double most = 0;
  for (const Curve& curve : experts.parts) most = std::max(most, curve.x.back());
  if (activated > most) is_outside = true;
  return experts.at(tokens, is_outside, [&](const Curve& of_tokens) {
    return of_tokens.at(std::min(activated, of_tokens.x.back()), is_outside);
  });
}

const Curve* ProfileTables::find_dense(const std::string& name) const {
  return find_layer(dense, name);
}

const Curve* ProfileTables::find_per_sequence(const std::string& name) const {
  return find_layer(per_sequence, name);
}

}  // namespace metronome
