// SPDX-License-Identifier: Apache-2.0
#include "core/workload/file_readers.h"

#include "core/config/config_reader.h"

namespace metronome {
namespace {

WorkloadFileReaders& registered() {
  static WorkloadFileReaders readers;
  return readers;
}

}  // namespace

void register_workload_readers(const WorkloadFileReaders& readers) { registered() = readers; }

const WorkloadFileReaders& workload_readers(const SourceLocation& where, const std::string& key) {
  const WorkloadFileReaders& readers = registered();
  if (readers.read_tokenizer == nullptr || readers.read_image == nullptr) {
    fail_config(where, key,
                "this program has no reader for tokenizers and pictures (register_models() in "
                "models/models.h registers it); allowed: a workload that needs neither");
  }
  return readers;
}

}  // namespace metronome
