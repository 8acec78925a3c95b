// SPDX-License-Identifier: Apache-2.0
#include "models/image/image_resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr std::int64_t kChannels = 3;

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// How each output of one axis is summed: `num` inputs from `first` on.
struct Window {
  std::int64_t first = 0;
  std::int64_t num = 0;
  std::size_t weight = 0;  // place of the first weight
};

struct Axis {
  std::vector<Window> windows;        // [num_outputs]
  std::vector<std::int32_t> weights;  // of 16 bits, in units of 2^-precision
  int precision = 0;
};

Axis make_axis(std::int64_t num_inputs, std::int64_t num_outputs) {
  const double scale = static_cast<double>(num_inputs) / static_cast<double>(num_outputs);
  const double support = scale >= 1 ? 2 * scale : 2;
  const double inverse = scale >= 1 ? 1 / scale : 1;
  Axis axis;
  std::vector<double> weights;
  double largest = 0;
  for (std::int64_t i = 0; i < num_outputs; ++i) {
    const double centre = scale * (static_cast<double>(i) + 0.5);
    Window window;
    window.first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    window.num =
        std::min(static_cast<std::int64_t>(centre + support + 0.5), num_inputs) - window.first;
    window.weight = weights.size();
    double total = 0;
    for (std::int64_t j = 0; j < window.num; ++j) {
      const double place = static_cast<double>(j + window.first) - centre + 0.5;
      weights.push_back(cubic(place * inverse));
      total += weights.back();
    }
    for (std::size_t k = window.weight; k < weights.size(); ++k) {
      if (total != 0) weights[k] /= total;
      largest = std::max(largest, weights[k]);
    }
    axis.windows.push_back(window);
  }
  // The most bits with which the largest weight fits in 16.
  while (axis.precision < 22 &&
         static_cast<int>(0.5 + largest * (1 << (axis.precision + 1))) < (1 << 15)) {
    ++axis.precision;
  }
  for (const double weight : weights) {
    const double scaled = weight * (1 << axis.precision);
    axis.weights.push_back(static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5));
  }
  return axis;
}

std::uint8_t rounded(std::int32_t sum, int precision) {
  return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255));
}

// One output: a sum over `window` of inputs that are `stride` apart.
std::uint8_t sum_of(const Axis& axis, const Window& window, const std::uint8_t* inputs,
                    std::int64_t stride) {
  std::int32_t sum = axis.precision > 0 ? 1 << (axis.precision - 1) : 0;
  const std::int32_t* const weights = axis.weights.data() + window.weight;
  for (std::int64_t j = 0; j < window.num; ++j) {
    sum += weights[j] * inputs[(window.first + j) * stride];
  }
  return rounded(sum, axis.precision);
}

ImagePixels resize_columns(const ImagePixels& image, std::int64_t width) {
  const Axis axis = make_axis(image.width, width);
  ImagePixels out{.height = image.height, .width = width, .rgb = {}};
  out.rgb.reserve(static_cast<std::size_t>(image.height * width * kChannels));
  for (std::int64_t row = 0; row < image.height; ++row) {
    const std::uint8_t* const inputs = image.rgb.data() + row * image.width * kChannels;
    for (const Window& window : axis.windows) {
      for (std::int64_t c = 0; c < kChannels; ++c) {
        out.rgb.push_back(sum_of(axis, window, inputs + c, kChannels));
      }
    }
  }
  return out;
}

ImagePixels resize_rows(const ImagePixels& image, std::int64_t height) {
  const Axis axis = make_axis(image.height, height);
  const std::int64_t stride = image.width * kChannels;
  ImagePixels out{.height = height, .width = image.width, .rgb = {}};
  out.rgb.reserve(static_cast<std::size_t>(height * stride));
  for (const Window& window : axis.windows) {
    for (std::int64_t i = 0; i < stride; ++i) {
      out.rgb.push_back(sum_of(axis, window, image.rgb.data() + i, stride));
    }
  }
  return out;
}

}  // namespace

ImagePixels resize_image(const ImagePixels& image, std::int64_t height, std::int64_t width) {
  METRONOME_CHECK(image.height >= 1 && image.width >= 1 && height >= 1 && width >= 1,
                  "images have pixels");
  ImagePixels resized = width == image.width ? image : resize_columns(image, width);
  return height == resized.height ? resized : resize_rows(resized, height);
}

}  // namespace metronome
