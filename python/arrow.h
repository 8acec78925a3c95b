// SPDX-License-Identifier: Apache-2.0
// Tables for other libraries of columns, by the C data interface of Apache Arrow.
#pragma once

#include <nanobind/nanobind.h>

namespace metronome::python {

// A capsule `arrow_array_stream` with one batch: the columns of a table (tables.h), as they are.
// Bytes are booleans; a column of words is a dictionary. The batch shares the arrays' memory, but
// for booleans, which Arrow keeps as bits.
// https://arrow.apache.org/docs/format/CStreamInterface.html
nanobind::capsule arrow_stream(const nanobind::dict& table);

}  // namespace metronome::python
