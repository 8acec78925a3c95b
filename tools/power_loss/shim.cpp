// SPDX-License-Identifier: Apache-2.0
// Loaded with LD_PRELOAD by tools/check_power_loss: notes which files and folders are not synced,
// so that the check can take away what a loss of power would have taken.
//
// Lines of the journal ($POWER_LOSS_JOURNAL), each one write(2):
//   D DEVICE INODE        the file has bytes that are not on the disk
//   D DEVICE INODE NAME   the folder has this new name, which is not on the disk
//   S DEVICE INODE BYTES  the disk has so many bytes of the file, or all names of the folder
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <string>

namespace {

constexpr int kMaxFiles = 4096;
std::array<std::atomic<bool>, kMaxFiles> is_noted;  // descriptors whose file is noted as D
int journal = -1;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void note(char what, const struct stat& status, const std::string& rest = {}) {
  static auto* const real_write = next<ssize_t(int, const void*, size_t)>("write");
  std::string line{what};
  line += " " + std::to_string(status.st_dev) + " " + std::to_string(status.st_ino);
  line += (rest.empty() ? "" : " " + rest) + "\n";
  const auto size = static_cast<ssize_t>(line.size());
  if (journal >= 0 && real_write(journal, line.data(), line.size()) != size) abort();
}

void note_written(int file) {
  if (file < 0 || file >= kMaxFiles || file == journal || is_noted[file].exchange(true)) return;
  struct stat status;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) note('D', status);
}

// Syncs by `real`. Bytes written meanwhile may be left out: bytes are counted before.
int sync_by(int (*real)(int), int file) {
  struct stat status;
  const bool is_known = ::fstat(file, &status) == 0;
  if (file >= 0 && file < kMaxFiles) is_noted[file] = false;
  const int result = real(file);
  if (result == 0 && is_known) note('S', status, std::to_string(status.st_size));
  return result;
}

void note_new_name(const char* path) {
  const std::string text = path;
  const std::size_t slash = text.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : text.substr(0, slash + 1);
  struct stat status;
  const std::string name = slash == std::string::npos ? text : text.substr(slash + 1);
  if (::stat(folder.c_str(), &status) == 0) note('D', status, name);
}

// Opens a file by `real`, which may create it.
template <class Open>
int open_by(Open* real, const char* path, int flags, unsigned int mode) {
  struct stat status;
  const bool is_new = (flags & O_CREAT) != 0 && ::lstat(path, &status) != 0;
  const int file = real(path, flags, mode);
  if (file >= 0 && is_new) note_new_name(path);
  return file;
}

__attribute__((constructor)) void open_journal() {
  const char* path = std::getenv("POWER_LOSS_JOURNAL");
  if (path != nullptr) journal = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const unsigned int mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned int) : 0;
  va_end(rest);
  return open_by(real, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open64");
  va_list rest;
  va_start(rest, flags);
  const unsigned int mode = (flags & O_CREAT) != 0 ? va_arg(rest, unsigned int) : 0;
  va_end(rest);
  return open_by(real, path, flags, mode);
}

ssize_t write(int file, const void* bytes, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  note_written(file);
  return real(file, bytes, size);
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const struct iovec*, int)>("writev");
  note_written(file);
  return real(file, parts, count);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  note_written(file);
  return real(file, bytes, size, offset);
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  return sync_by(real, file);
}

int fdatasync(int file) {
  static auto* const real = next<int(int)>("fdatasync");
  return sync_by(real, file);
}

int close(int file) {
  static auto* const real = next<int(int)>("close");
  if (file >= 0 && file < kMaxFiles) is_noted[file] = false;
  return real(file);
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  const int result = real(path, mode);
  if (result == 0) note_new_name(path);
  return result;
}

int rename(const char* from, const char* to) {
  static auto* const real = next<int(const char*, const char*)>("rename");
  const int result = real(from, to);
  if (result == 0) note_new_name(to);
  return result;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned int flags) {
  static auto* const real =
      next<int(int, const char*, int, const char*, unsigned int)>("renameat2");
  const int result = real(from_folder, from, to_folder, to, flags);
  if (result == 0) note_new_name(to);
  return result;
}

}  // extern "C"
