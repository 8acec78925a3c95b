// Loaded with LD_PRELOAD by tools/check_power_loss: notes which files and folders are not synced,
// so that the check can take away what a loss of power would have taken.
//
// Lines of the journal ($POWER_LOSS_JOURNAL), each one write(2):
//   D DEVICE INODE        the file has bytes that are not on the disk
//   D DEVICE INODE NAME   the folder has this new name, which is not on the disk
//   S DEVICE INODE        all of them are
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
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

void note(char what, const struct stat& status, const std::string& name = {}) {
  static auto* const real_write = next<ssize_t(int, const void*, size_t)>("write");
  std::string line{what};
  line += " " + std::to_string(status.st_dev) + " " + std::to_string(status.st_ino);
  line += (name.empty() ? "" : " " + name) + "\n";
  const auto size = static_cast<ssize_t>(line.size());
  if (journal >= 0 && real_write(journal, line.data(), line.size()) != size) abort();
}

void note_written(int file) {
  if (file < 0 || file >= kMaxFiles || file == journal || is_noted[file].exchange(true)) return;
  struct stat status;
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) note('D', status);
}

void note_synced(int file) {
  struct stat status;
  if (::fstat(file, &status) != 0) return;
  if (file < kMaxFiles) is_noted[file] = false;
  note('S', status);
}

void note_new_name(const char* path) {
  const std::string text = path;
  const std::size_t slash = text.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : text.substr(0, slash + 1);
  struct stat status;
  const std::string name = slash == std::string::npos ? text : text.substr(slash + 1);
  if (::stat(folder.c_str(), &status) == 0) note('D', status, name);
}

__attribute__((constructor)) void open_journal() {
  const char* path = std::getenv("POWER_LOSS_JOURNAL");
  if (path != nullptr) journal = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

}  // namespace

extern "C" {

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

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  const int result = real(file);
  if (result == 0) note_synced(file);
  return result;
}

int fdatasync(int file) {
  static auto* const real = next<int(int)>("fdatasync");
  const int result = real(file);
  if (result == 0) note_synced(file);
  return result;
}

int close(int file) {
  static auto* const real = next<int(int)>("close");
  if (file >= 0 && file < kMaxFiles) is_noted[file] = false;
  return real(file);
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
