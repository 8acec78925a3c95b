// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_answer.h"

#include <cstddef>

#include "reports/html/report_html.h"

namespace metronome {
namespace {

std::string lines_html(const std::vector<TextLine>& lines) {
  constexpr std::size_t kOwnLine = 2;  // from this indent on, a line is part of the one above it
  std::string html;
  for (const TextLine& line : lines) {
    html += line.indent > kOwnLine ? "<p class=\"part\">" : "<p>";
    html += html_text(line.text) + "</p>\n";
  }
  return html;
}

std::string cell_html(const std::string& text, bool is_head, bool is_word) {
  const std::string tag = is_head ? "th" : "td";
  return "<" + tag + (is_head ? " scope=\"col\"" : "") + (is_word ? " class=\"text\">" : ">") +
         html_text(text) + "</" + tag + ">";
}

std::string table_html(const TextTable& table) {
  std::string html = "<div class=\"scroll\"><table>\n<thead>";
  bool is_head = true;
  for (const std::vector<std::string>& row : table.rows()) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      html += cell_html(row[i], is_head, i == table.word_column());
    }
    html += is_head ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
    is_head = false;
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string answer_html(std::span<const TextBlock> blocks) {
  std::string html;
  for (const TextBlock& block : blocks) {
    if (!block.title.empty()) html += "<h3>" + html_text(block.title) + "</h3>\n";
    html += lines_html(block.lines);
    if (block.table) html += table_html(*block.table);
    html += lines_html(block.below);
    if (!block.copied.empty()) html += "<pre>" + html_text(block.copied) + "</pre>\n";
  }
  return html;
}

}  // namespace metronome
