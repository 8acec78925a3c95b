// SPDX-License-Identifier: Apache-2.0
// Turns the messages of a chat request into a prompt by the chat template of the model's folder.
#pragma once

#include <cstddef>
#include <string>

#include "models/text/folder_chat.h"
#include "serve/server/api_fields.h"
#include "serve/server/chat_images.h"

namespace metronome {

// Whether the prompt ends in its last message, as the field continue_final_message asks.
// `add_generation_prompt` gets the field of that name, which is by default the opposite. Throws
// ApiError where both are true.
bool continues_final_message(const ApiFields& fields, bool& add_generation_prompt);

// Reads messages, tools, tool_choice, documents, add_generation_prompt, continue_final_message and
// chat_template_kwargs. Contents that are lists of texts become one text, with line breaks between,
// unless the template takes lists. Arguments of tool calls become values, as in vLLM. At most
// `max_entries` messages, and parts of each. `images` takes the images, if the model does; a
// content with one stays a list. If nobody `reads` the prompt but for its length, the template may
// leave tools out, and any tool_choice is allowed. Throws ApiError, also for what the template
// refuses.
std::string template_prompt(const ApiFields& fields, const FolderChat& chat,
                            std::size_t max_entries, ChatImages& images, bool reads = true);

}  // namespace metronome
