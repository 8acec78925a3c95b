// SPDX-License-Identifier: Apache-2.0
// Which measured attention stands for a model's, by hand.
#include "sim/operators/attention_grid.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

AttentionCells cells_of(const std::string& engine, std::int64_t heads, std::int64_t kv_heads,
                        double us, const std::string& kv_dtype = "bfloat16") {
  AttentionCells cells;
  cells.origin = {engine, "1.0"};
  cells.kernel = "fa";
  cells.dtype = "bfloat16";
  cells.kv_dtype = kv_dtype;
  cells.heads = heads;
  cells.kv_heads = kv_heads;
  cells.us = {{{1, 7}, us}, {{1, 15}, 2 * us}, {{2, 7}, 2 * us}, {{2, 15}, 4 * us}};
  return cells;
}

// The first cell, and what was remarked.
struct Chosen {
  double us = 0;
  std::vector<std::string> remarks;
};

Chosen choose(const OperatorTables& tables, const AttentionWanted& wanted) {
  Chosen chosen;
  const auto grid = attention_grid(tables, AttentionPhase::Decodes, wanted, chosen.remarks);
  if (grid) chosen.us = grid->us[0];
  return chosen;
}

using Remarks = std::vector<std::string>;

TEST_CASE("contexts include the decoded token", "[operators]") {
  OperatorTables tables;
  tables.meta.engine = "vllm";
  tables.decode = {cells_of("vllm", 8, 2, 5)};
  Remarks remarks;
  const auto grid = attention_grid(tables, AttentionPhase::Decodes, {8, 2, 0, "bfloat16"}, remarks);
  REQUIRE(grid);
  CHECK(grid->rows == std::vector<double>{1, 2});
  CHECK(grid->columns == std::vector<double>{8, 16});
  CHECK(grid->us == std::vector<double>{5, 10, 10, 20});
  CHECK(remarks.empty());
}

TEST_CASE("other heads are scaled, other engines and KV types named", "[operators]") {
  OperatorTables tables;
  tables.meta.engine = "vllm";
  tables.decode = {cells_of("vllm", 32, 8, 30), cells_of("vllm", 4, 1, 6),
                   cells_of("vllm", 6, 2, 7), cells_of("sglang", 40, 40, 9),
                   cells_of("sglang", 8, 2, 3)};
  // 16/4 has the groups of 32/8 and 4/1; in the logarithm 32 is nearer than 4.
  const Chosen scaled = choose(tables, {16, 4, 0, "bfloat16"});
  CHECK(scaled.us == 15);
  CHECK(scaled.remarks == Remarks{"attention of decodes: 16/4 heads are 32/8 heads times 0.50"});
  // No groups of 5; as many KV heads.
  CHECK(choose(tables, {10, 2, 0, "bfloat16"}).us == Approx(7. * 10 / 6));
  const Chosen other = choose(tables, {40, 40, 0, "bfloat16"});
  CHECK(other.us == 9);
  CHECK(other.remarks == Remarks{"attention of decodes: of sglang 1.0"});
  const Chosen kv = choose(tables, {4, 1, 0, "fp8"});
  CHECK(kv.us == 6);
  CHECK(kv.remarks == Remarks{"attention of decodes: with KV of bfloat16"});
  CHECK(choose(tables, {4, 1, 128, "bfloat16"}).us == 0);
}

TEST_CASE("fewer heads take no longer than more of the same engine", "[operators]") {
  OperatorTables tables;
  tables.meta.engine = "vllm";
  tables.decode = {cells_of("vllm", 8, 2, 10), cells_of("vllm", 16, 4, 6),
                   cells_of("vllm", 32, 8, 7), cells_of("sglang", 64, 16, 1)};
  const Chosen chosen = choose(tables, {8, 2, 0, "bfloat16"});
  CHECK(chosen.us == 6);
  CHECK(chosen.remarks == Remarks{"attention of decodes: 8/2 heads took longer than more heads in "
                                  "100 % of cells; the shorter time counts"});
}

TEST_CASE("of SGLang's kernels the one that it runs counts", "[operators]") {
  OperatorTables tables;
  tables.meta.engine = "sglang";
  tables.meta.sm_version = 90;
  tables.decode = {cells_of("sglang", 8, 2, 10), cells_of("sglang", 8, 2, 4)};
  tables.decode[0].kernel = "fa3";
  tables.decode[1].kernel = "triton";
  CHECK(choose(tables, {8, 2, 0, "bfloat16"}).us == 10);
  tables.meta.sm_version = 100;  // neither is Blackwell's: the faster one
  CHECK(choose(tables, {8, 2, 0, "bfloat16"}).us == 4);
}

TEST_CASE("prompts are computed in bfloat16 where that was measured", "[operators]") {
  OperatorTables tables;
  tables.meta.engine = "vllm";
  tables.context = {cells_of("vllm", 8, 2, 3), cells_of("vllm", 8, 2, 5)};
  tables.context[0].dtype = "fp8";
  Remarks remarks;
  const AttentionWanted wanted{8, 2, 0, "bfloat16"};
  const auto grid = attention_grid(tables, AttentionPhase::Prompts, wanted, remarks);
  REQUIRE(grid);
  CHECK(grid->columns == std::vector<double>{7, 15});
  CHECK(grid->us[0] == 5);
  tables.context.pop_back();
  CHECK(attention_grid(tables, AttentionPhase::Prompts, wanted, remarks)->us[0] == 3);
}

}  // namespace
}  // namespace metronome::TEST_FILE
