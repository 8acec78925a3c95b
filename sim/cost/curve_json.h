// SPDX-License-Identifier: Apache-2.0
// Curves and grids in cost model files. Readers throw ConfigError that says where in the file
// something is wrong.
#pragma once

#include <vector>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "sim/cost/curve.h"
#include "sim/cost/grid.h"

namespace metronome {

Json numbers_json(const std::vector<double>& values);
Json curve_json(const char* key, const Curve& curve);
Json grid_json(const char* rows, const char* columns, const Grid& grid);

// Keys ascend, from 0 for curves and columns and from 1 for rows. Times are above 0, one for each
// point.
Curve read_curve(const JsonPlace& place, const char* key);
Grid read_grid(const JsonPlace& place, const char* rows, const char* columns);

}  // namespace metronome
