// SPDX-License-Identifier: Apache-2.0
// Columns as NumPy arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string_view>
#include <utility>
#include <vector>

namespace metronome::python {

// A NumPy array that owns the values.
template <class Value>
nanobind::object numpy_array(std::vector<Value> values) {
  auto* const owned = new std::vector<Value>(std::move(values));
  const nanobind::capsule owner(
      owned, [](void* data) noexcept { delete static_cast<std::vector<Value>*>(data); });
  const std::size_t shape[] = {owned->size()};
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, Value>(owned->data(), 1, shape, owner));
}

// A column of one word out of a few: (codes, words), where codes[i] is the place of row i's word.
template <class Code, class Words>
nanobind::object coded_column(std::vector<Code> codes, const Words& words) {
  nanobind::list names;
  for (const std::string_view word : words) {
    names.append(nanobind::str(word.data(), word.size()));
  }
  return nanobind::make_tuple(numpy_array(std::move(codes)), names);
}

}  // namespace metronome::python
