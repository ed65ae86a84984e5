// Text and tokens, as the model's file defines them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace expertmiss::engine {

/// Ids of `text`; `special`: with the tokens that the model wants at the start, and special tokens written out in the
/// text.
std::vector<int> tokenize(const llama_model* model, const std::string& text, bool special);
/// The bytes of a token, which may be a part of a character.
std::string piece(const llama_model* model, int token);
bool ends_text(const llama_model* model, int token);
/// (role, text) turns as the model's chat template writes them, the assistant's turn opened; empty where it has none.
std::string chat_prompt(const llama_model* model, const std::vector<std::pair<std::string, std::string>>& turns);

}  // namespace expertmiss::engine
