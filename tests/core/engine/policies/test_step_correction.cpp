// SPDX-License-Identifier: Apache-2.0
// Learning from steps that take another time than predicted.
#include <cmath>

#include "core/engine/policies/step_correction.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("exact predictions are not corrected", "[core][step_correction]") {
  StepCorrection correction;
  Rng rng(1, "exact");
  for (int i = 0; i < 2'000; ++i) {
    const TimeNs ns = rng.uniform_int(1, 1'000'000'000);
    const std::int32_t tokens = draw(rng, 0, 9'000);
    correction.learn(ns, ns, tokens);
    const TimeNs asked = rng.uniform_int(1, 1'000'000'000'000);
    REQUIRE(correction.corrected_ns(asked, draw(rng, 0, 20'000)) == asked);
  }
}

TEST_CASE("a device that is slower by a factor is known after one step",
          "[core][step_correction]") {
  StepCorrection correction;
  correction.learn(1'000'000, 1'500'000, 512);
  // A kind that was not seen takes the ratio of the nearest; decodes take it too, having no own.
  for (const std::int32_t tokens : {0, 1, 100, 512, 700, 1'024, 16'000}) {
    CAPTURE(tokens);
    CHECK(correction.corrected_ns(2'000'000, tokens) == 3'000'000);
  }
  correction.learn(1'000'000, 1'100'000, 0);
  CHECK(correction.corrected_ns(1'000'000, 0) == 1'100'000);
  CHECK(correction.corrected_ns(1'000'000, 256) == 1'500'000);
}

TEST_CASE("kinds of steps have ratios of their own, without jumps between them",
          "[core][step_correction]") {
  StepCorrection correction;
  for (int i = 0; i < 50; ++i) {
    correction.learn(1'000'000, 1'200'000, 300);    // 256 to 511
    correction.learn(1'000'000, 2'000'000, 1'500);  // 1024 to 2047
  }
  CHECK(correction.ratio(384) == Approx(1.2));
  CHECK(correction.ratio(1'536) == Approx(2.0));
  double before = correction.ratio(128);
  for (std::int32_t tokens = 129; tokens < 4'096; ++tokens) {
    const double ratio = correction.ratio(tokens);
    REQUIRE(ratio >= before);
    REQUIRE(ratio - before < 0.01);
    before = ratio;
  }
  CHECK(correction.ratio(4'096) == Approx(2.0));
}

TEST_CASE("one wild step moves a ratio by a sixteenth at most", "[core][step_correction]") {
  for (const TimeNs wild : {TimeNs{1}, TimeNs{1'000'000'000'000}}) {
    StepCorrection correction;
    for (int i = 0; i < 20; ++i) correction.learn(1'000'000, 1'000'000, 512);
    correction.learn(1'000'000, wild, 512);
    CHECK(correction.ratio(600) >= 1 - 1.0 / 16);
    CHECK(correction.ratio(600) <= 1 + 1.0 / 8);
    for (int i = 0; i < 60; ++i) correction.learn(1'000'000, 1'000'000, 512);
    CHECK(correction.ratio(600) == Approx(1).epsilon(0.001));
  }
}

TEST_CASE("times that scatter get a margin that few of them exceed", "[core][step_correction]") {
  StepCorrection correction;
  Rng rng(3, "scatter");
  int num_exceeded = 0;
  constexpr int kSteps = 4'000;
  for (int i = 0; i < kSteps; ++i) {
    const TimeNs measured = std::llround(1'000'000 * (1.25 + 0.1 * (rng.uniform() - 0.5)));
    if (i > 20 && measured > correction.corrected_ns(1'000'000, 512)) ++num_exceeded;
    correction.learn(1'000'000, measured, 512);
  }
  CHECK(num_exceeded < kSteps / 50);
  CHECK(correction.ratio(512) == Approx(1.25).epsilon(0.03));
  CHECK(correction.corrected_ns(1'000'000, 512) < 1'400'000);
}

TEST_CASE("times that mean nothing teach nothing", "[core][step_correction]") {
  StepCorrection correction;
  correction.learn(kNoTime, 5, 100);
  correction.learn(0, 5, 100);
  correction.learn(5, 0, 100);
  CHECK(correction.corrected_ns(1'000, 100) == 1'000);
}

}  // namespace metronome::testing::TEST_FILE
