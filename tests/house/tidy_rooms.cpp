// SPDX-License-Identifier: Apache-2.0
// The rooms of the house: what each folder may include, and headers that nobody does.
#include <algorithm>
#include <map>
#include <set>

#include "tests/house/tidy.h"

namespace metronome::testing {
namespace {

struct Room {
  std::string_view folder;             // with the folders below it that have no row of their own
  std::string_view may_include;        // folders with all below them, or headers
  std::string_view cpp_may_include{};  // the same, for .cpp files alone
};

// docs/internals/architecture.md says what each is for. A room may always include itself.
constexpr Room kRooms[] = {
    {"core/base", ""},
    {"core/config", "core/base"},
    {"core/model", "core/base core/config"},
    {"core/hardware", "core/base core/config"},
    {"core/engine", "core/base core/model", "core/config"},
    {"core/engine/kv",
     "core/base core/engine/engine_choices.h core/engine/prompt.h core/engine/request.h"},
    {"core/engine/policies", "core/base core/engine", "core/config"},
    {"engines", "core"},
    {"core/workload", "core/base core/config core/engine core/model"},
    {"core/metrics", "core/base core/engine", "core/config"},
    {"core/scenario",
     "core/base core/config core/model core/hardware core/engine core/workload core/metrics"},
    {"core/run", "core/base core/model core/engine core/workload core/scenario"},
    {"system", "core/base"},
    {"models/gguf", "core/base system"},
    {"models/text", "core/base core/model models/gguf system"},
    {"models/text/jinja", "core/base models/text/utf8.h"},
    {"models/image", "core/base core/model core/engine"},
    {"models/weights", "core/base core/config core/model core/scenario models/gguf system"},
    {"models", "core"},
    {"sim/cost", "core"},
    {"sim/drafts", "core sim/cost"},
    {"sim/link", "core sim/cost"},
    {"sim/roofline", "core sim/cost sim/link"},
    {"sim/profile", "core sim/cost sim/link"},
    {"sim/operators", "core sim/cost sim/link"},
    {"sim/fitted", "core sim/cost sim/roofline"},
    {"sim/replay", "core sim/cost sim/fitted"},
    {"sim/corrected", "core sim/cost sim/roofline"},
    {"sim", "core"},
    {"fleet", "core engines sim system"},
    {"cpu", "core models/image models/weights"},
    {"gpu/plan", "core"},
    {"gpu/kernels", "core/base core/model core/engine models/weights gpu/plan"},
    {"gpu/engine", "core models/weights gpu/plan gpu/kernels"},
    {"gpu/bench", "core models/weights gpu/plan gpu/kernels gpu/engine"},
    {"gpu/emulator", "core/base models/weights gpu/kernels/common"},
    {"gpu", "core"},
    {"reports/files", "core system"},
    {"reports/measured", "core engines reports/files"},
    {"reports/terminal", "core engines reports/files reports/measured"},
    {"reports/html", "core reports/files"},
    {"reports/compare", "core reports/files reports/measured"},
    {"study/run", "core engines sim reports system"},
    {"study/compose", "core engines sim"},
    {"study/recorded", "core engines sim reports"},
    {"study/decisions", "core engines fleet"},
    {"study/verify", "core engines reports"},
    {"study/bench", "core sim reports gpu/plan system"},
    {"study/calibrate", "core engines sim reports study/run study/recorded system"},
    {"study/rebuilt", "core engines sim reports study/calibrate study/compose system"},
    {"study/sweep", "core sim reports study/run system"},
    {"study/tune", "core fleet sim reports study/run system"},
    {"study/watch", "core engines reports study/what_if"},
    {"study/what_if", "core engines sim reports study/run system"},
    {"serve/client", "core reports"},
    {"serve/server", "core models/image models/text reports system"},
    {"python", "core engines fleet models reports study system tools/commands"},
    {"tools/commands", "core engines models sim fleet cpu gpu reports study serve system"},
    {"tools", "core engines models system"},
    {"tests", "core engines models sim fleet cpu gpu reports study serve system tools"},
};

bool is_below(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

// The innermost; nullptr: the path is in none.
const Room* room_of(std::string_view path) {
  const Room* innermost = nullptr;
  for (const Room& room : kRooms) {
    if (!is_below(path, room.folder)) continue;
    if (innermost == nullptr || room.folder.size() > innermost->folder.size()) innermost = &room;
  }
  return innermost;
}

bool allows(std::string_view folders, std::string_view target) {
  const std::vector<std::string_view> words = words_of(folders);
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return target == word || is_below(target, word);
  });
}

// The text between backticks in the sentence of a README that begins "May include:".
std::set<std::string> named_in(std::string_view readme, std::size_t begin) {
  const std::size_t end = std::min(readme.find(".\n", begin), readme.find(". ", begin));
  const std::string_view sentence = readme.substr(begin, end - begin);
  std::set<std::string> names;
  for (std::size_t at = sentence.find('`'); at != std::string_view::npos;) {
    const std::size_t close = sentence.find('`', at + 1);
    if (close == std::string_view::npos) break;
    names.emplace(sentence.substr(at + 1, close - at - 1));
    at = sentence.find('`', close + 1);
  }
  names.erase(".cpp");
  return names;
}

bool is_header(std::string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

}  // namespace

std::string include_fault(std::string_view path, std::string_view target) {
  const std::string name(target);
  if (target.find('/') == std::string_view::npos) {
    return "\"" + name + "\" is not relative to the repository root";
  }
  const Room* room = room_of(path);
  if (room == nullptr) return "is in no room (tests/house/tidy_rooms.cpp)";
  if (is_below(target, room->folder) || allows(room->may_include, target)) return {};
  if (!is_header(path) && allows(room->cpp_may_include, target)) return {};
  return std::string(room->folder) + "/ must not include \"" + name + "\"";
}

std::string readme_fault(const SourceFile& readme) {
  const std::string_view path = readme.path;
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const auto room = std::find_if(std::begin(kRooms), std::end(kRooms), [&](const Room& candidate) {
    return candidate.folder == path.substr(0, slash);
  });
  if (room == std::end(kRooms)) return {};
  std::set<std::string> allowed;
  for (const std::string_view folders : {room->may_include, room->cpp_may_include}) {
    for (const std::string_view word : words_of(folders)) allowed.emplace(word);
  }
  const std::size_t at = readme.text.find("May include:");
  if (at == std::string::npos) return "does not say what the room \"May include:\"";
  if (named_in(readme.text, at) == allowed) return {};
  std::string list;
  for (const std::string& name : allowed) list += " `" + name + "`";
  return "\"May include:\" names other folders than tests/house/tidy_rooms.cpp:" +
         (list.empty() ? " none" : list);
}

std::vector<std::string> room_cycles() {
  std::map<std::string_view, std::set<std::string_view>> reaches;
  for (const Room& room : kRooms) {
    for (const std::string_view folders : {room.may_include, room.cpp_may_include}) {
      for (const Room& other : kRooms) {
        const bool is_meant =
            other.folder != room.folder && allows(folders, std::string(other.folder) + "/x");
        if (is_meant) reaches[room.folder].insert(other.folder);
      }
    }
  }
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (auto& [room, reached] : reaches) {
      for (const std::string_view through : std::set(reached)) {
        for (const std::string_view beyond : reaches[through]) {
          has_grown = reached.insert(beyond).second || has_grown;
        }
      }
    }
  }
  std::vector<std::string> cycles;
  for (const auto& [room, reached] : reaches) {
    if (reached.count(room) > 0) cycles.emplace_back(room);
  }
  return cycles;
}

std::vector<Violation> check_orphans(const std::vector<SourceFile>& files) {
  std::set<std::string_view> included;
  for (const SourceFile& file : files) {
    constexpr std::string_view kInclude = "#include \"";
    const std::string_view text = file.text;
    for (std::size_t at = text.find(kInclude); at != std::string_view::npos;
         at = text.find(kInclude, at + 1)) {
      const std::size_t begin = at + kInclude.size();
      const std::string_view target = text.substr(begin, text.find('"', begin) - begin);
      // A file of its own name is no reason for a header to be there.
      const std::string_view path = file.path;
      const bool is_own = path.substr(0, path.rfind('.')) == target.substr(0, target.rfind('.'));
      if (!is_own) included.insert(target);
    }
  }
  std::vector<Violation> violations;
  for (const SourceFile& file : files) {
    if (!is_source(file.path)) continue;
    if (room_of(file.path) == nullptr) {
      violations.push_back({file.path, 0, "is in no room (tests/house/tidy_rooms.cpp)"});
    } else if (is_header(file.path) && included.count(file.path) == 0 &&
               !is_below(file.path, "gpu/emulator")) {  // its headers stand for the toolkit's
      violations.push_back({file.path, 0, "nobody includes it"});
    }
  }
  return violations;
}

}  // namespace metronome::testing
