// SPDX-License-Identifier: Apache-2.0
// Operators from formulas, as tools/import_tables would have written them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/operators/operator_compose.h"
#include "sim/operators/operator_file.h"
#include "sim/operators/product_curve.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome::testing {

// Times that the rules of interpolation reproduce exactly, on a GPU with an H100's peaks.
struct OperatorTimesLab {
  static double product_us(double m, double n, double k, const std::string& dtype = "bfloat16") {
    OperatorMeta meta;
    meta.memory_bandwidth = 3.35e12;
    meta.bfloat16_flops = 989e12;
    meta.fp8_flops = 1978e12;
    meta.fp4_flops = 3956e12;
    return 1.5 * (peaks_of(dtype, meta).least_us(m, n, k) + 3);
  }
  static double prompts_us(double heads, double prompts, double pairs) {
    return 10 + 1e-7 * heads * prompts * pairs;
  }
  static double decodes_us(double heads, double decodes, double context) {
    return 8 + 1e-5 * heads * decodes * context;
  }
  static double experts_us(double tp, double tokens) { return (40 + tokens / 8) / tp; }
  static double collective_us(double bytes) { return 4 + bytes / 1e5; }
};

// Within its range.
inline double at(const Curve& curve, double x) {
  bool is_outside = false;
  const double us = curve.at(x, is_outside);
  CHECK_FALSE(is_outside);
  return us;
}

inline std::vector<double> doubling(double first, double last) {
  std::vector<double> values;
  for (double value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}

// Files by name, to be written whole or with something wrong.
class OperatorFolder {
 public:
  std::map<std::string, std::string> files;

  // With experts of the shape that `experts` names.
  explicit OperatorFolder(const std::string& experts = "null", int expert_parallel_size = 1) {
    files["operators.json"] =
        "{\"package\": \"package 1.0\", \"licence\": \"Apache-2.0\", \"system\": \"h100_sxm\", "
        "\"engine\": \"vllm\", \"sm_version\": 90, \"memory_bandwidth\": 3.35e12, "
        "\"bfloat16_flops\": 989e12, \"fp8_flops\": 1978e12, \"fp4_flops\": 3956e12, "
        "\"head_dim\": 128, \"expert_parallel_size\": " +
        std::to_string(expert_parallel_size) + ", \"experts\": " + experts + "}";
    write_products("bfloat16");
    write_attention();
    write_collectives();
    if (experts != "null") write_experts();
  }

  void write_products(const std::string& dtype, const std::string& engine = "vllm",
                      double extra_us = 0) {
    std::string& text = files["gemm.csv"];
    if (text.empty()) text = "dtype,m,n,k,time_us,engine,version\n";
    std::ostringstream rows;
    rows.precision(15);
    for (const double n : doubling(128, 131072)) {
      for (const double k : doubling(128, 32768)) {
        for (const double m : doubling(1, 16384)) {
          rows << dtype << ',' << m << ',' << n << ',' << k << ','
               << OperatorTimesLab::product_us(m, n, k, dtype) + extra_us << ',' << engine
               << ",1.0\n";
        }
      }
    }
    text += rows.str();
  }

  std::string write(const ScratchFolder& folder) const {
    for (const auto& [name, text] : files) folder.write(name, text);
    return folder.path();
  }

 private:
  void write_attention() {
    std::ostringstream prompts;
    std::ostringstream decodes;
    prompts.precision(15);
    decodes.precision(15);
    const std::string start = "kernel,dtype,kv_dtype,heads,kv_heads,window,";
    prompts << start << "prompts,tokens,time_us,engine,version\n";
    decodes << start << "sequences,context,time_us,engine,version\n";
    for (const double heads : {8., 16., 32.}) {
      std::ostringstream row;
      row << "fa,bfloat16,bfloat16," << heads << ',' << heads / 4 << ",0,";
      for (const double count : doubling(1, 256)) {
        for (const double length : doubling(2, 16384)) {
          prompts << row.str() << count << ',' << length << ','
                  << OperatorTimesLab::prompts_us(heads, count, length * length / 2)
                  << ",vllm,1.0\n";
          decodes << row.str() << count << ',' << length - 1 << ','
                  << OperatorTimesLab::decodes_us(heads, count, length) << ",vllm,1.0\n";
        }
      }
    }
    files["context_attention.csv"] = prompts.str();
    files["decode_attention.csv"] = decodes.str();
  }

  void write_collectives() {
    std::ostringstream out;
    out.precision(15);
    out << "collective,devices,launch,bytes,time_us,engine,version\n";
    for (const char* collective : {"all_reduce", "all_gather"}) {
      const bool is_reduce = std::string(collective) == "all_reduce";
      for (const int devices : {2, 4}) {
        for (const double bytes : doubling(1024, 268435456)) {
          out << collective << ',' << devices << ",graph," << bytes << ','
              << OperatorTimesLab::collective_us(bytes)
              << (is_reduce ? ",vllm,1.0\n" : ",nccl,2\n");
        }
      }
    }
    files["collectives.csv"] = out.str();
  }

  void write_experts() {
    std::ostringstream out;
    out.precision(15);
    out << "dtype,tp,distribution,tokens,time_us,engine,version\n";
    for (const int tp : {1, 2}) {
      for (const char* law : {"balanced", "power_law_1.2"}) {
        const double slowness = std::string(law) == "balanced" ? 0.5 : 1;
        for (const double tokens : doubling(1, 16384)) {
          out << "bfloat16," << tp << ',' << law << ',' << tokens << ','
              << slowness * OperatorTimesLab::experts_us(tp, tokens) << ",vllm,1.0\n";
        }
      }
    }
    files["moe.csv"] = out.str();
  }
};

inline OperatorTables tables_of(const OperatorFolder& files) {
  const ScratchFolder folder;
  return read_operator_tables(files.write(folder));
}

inline OperatorTimes operators_of(const std::string& model, std::int64_t tp = 1) {
  return compose_operators(tables_of(OperatorFolder()), find_model(model, {}), tp);
}

// A file of these operators on an H100.
inline CostModelFile file_of(const OperatorTimes& times, const ModelConfig& model,
                             std::int64_t tp = 1) {
  CostModelFile file;
  file.kind = "operators";
  file.name = "test.json";
  file.hardware = "h100-sxm";
  file.model = model.name;
  file.tensor_parallel_size = tp;
  file.body = std::make_shared<const Json>(operator_body(times, model));
  return file;
}

}  // namespace metronome::testing
