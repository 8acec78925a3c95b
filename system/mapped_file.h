// SPDX-License-Identifier: Apache-2.0
// A file in memory: read-only, and read from the disk page by page when it is used.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace metronome {

// The file must not shrink while it is in use.
class MappedFile {
 public:
  // Throws ConfigError "PATH: what is wrong; allowed: ALLOWED" for a file that cannot be read or is
  // empty, and for a folder, pipe or device.
  MappedFile(const std::string& path, const std::string& allowed);

  std::span<const std::byte> bytes() const { return {mapping_.get(), mapping_.get_deleter().size}; }

 private:
  struct Unmap {
    std::size_t size;
    void operator()(const std::byte* begin) const;
  };

  std::unique_ptr<const std::byte, Unmap> mapping_;
};

}  // namespace metronome
