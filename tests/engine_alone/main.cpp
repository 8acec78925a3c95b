// SPDX-License-Identifier: Apache-2.0
// The engine alone: 100 prompt tokens in chunks of 32, on a device that needs a millisecond a step.
#include "core/engine/engine.h"

using namespace metronome;

struct Device final : Executor {
  void launch(const StepPlan& plan, const RequestTable&, TimeNs now) override {
    result.step_index = plan.step_index;
    result.finished_at = (result.started_at = now) + 1'000'000;
  }
  const StepResult& collect() override { return result; }
  StepResult result;
};

int main() {
  EngineSetup setup;
  setup.scheduler.policy = "chunked";
  setup.scheduler.prefill_chunk_size = 32;
  setup.kv_cache.num_blocks = setup.kv_cache.block_size = 16;
  setup.max_model_len = 256;
  Device device;
  Engine engine(setup, device, {});
  engine.submit({0, 100, 3});  // four chunks, the last of which gives a token, and two decodes
  engine.advance(kNever);
  return engine.num_ended() == 1 && engine.num_steps() == 6 && engine.now() == 6'000'000 ? 0 : 1;
}
