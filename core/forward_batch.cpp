#include "core/forward_batch.h"

#include "core/error.h"

namespace metronome {
namespace {

void append_table(const BlockTable& table, std::int64_t num_blocks, std::vector<BlockId>& ids,
                  std::vector<std::int32_t>& starts) {
  METRONOME_CHECK(static_cast<std::int64_t>(table.size()) >= num_blocks,
                  "a chunk has no room in its blocks");
  ids.insert(ids.end(), table.begin(), table.begin() + num_blocks);
  starts.push_back(static_cast<std::int32_t>(ids.size()));
}

}  // namespace

void ForwardBatch::clear() {
  requests.clear();
  query_start.assign(1, 0);
  context_lens.clear();
  table_start.assign(1, 0);
  block_tables.clear();
  window_table_start.assign(1, 0);
  window_block_tables.clear();
  token_ids.clear();
  positions.clear();
  logit_tokens.clear();
}

void flatten_pass(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                  std::int32_t block_size, ForwardBatch& batch) {
  batch.clear();
  for (std::int32_t i = pass.begin; i < pass.end; ++i) {
    const ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(i)];
    const Request& request = requests[chunk.request];
    const std::int64_t num_blocks = ceil_div(chunk.end_position(), block_size);
    batch.requests.push_back(chunk.request);
    batch.context_lens.push_back(chunk.end_position());
    append_table(request.block_table, num_blocks, batch.block_tables, batch.table_start);
    if (!request.window_table.empty()) {
      append_table(request.window_table, num_blocks, batch.window_block_tables,
                   batch.window_table_start);
    }
    for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p) {
      batch.positions.push_back(p);
    }
    batch.query_start.push_back(batch.num_tokens());
    if (chunk.samples_token) batch.logit_tokens.push_back(batch.num_tokens() - 1);
  }
  batch.token_ids.assign(batch.positions.size(), TokenId{});
  METRONOME_CHECK(batch.window_block_tables.empty() ||
                      batch.window_table_start.size() == batch.table_start.size(),
                  "all requests of a hybrid model have a window table");
}

}  // namespace metronome
