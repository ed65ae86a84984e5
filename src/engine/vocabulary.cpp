#include "vocabulary.hpp"

#include "error.hpp"

namespace expertmiss::engine {

std::vector<int> tokenize(const llama_model* model, const std::string& text, bool special) {
    const llama_vocab* vocab = llama_model_get_vocab(model);
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
        throw EngineError("this model's file holds no vocabulary; give token ids, or a file made with its tokenizer");
    std::vector<int> ids(text.size() + 8);
    const auto length = static_cast<std::int32_t>(text.size());
    int count =
        llama_tokenize(vocab, text.data(), length, ids.data(), static_cast<std::int32_t>(ids.size()), special, special);
    if (count < 0) {
        ids.resize(static_cast<std::size_t>(-count));
        count = llama_tokenize(vocab, text.data(), length, ids.data(), -count, special, special);
    }
    ids.resize(static_cast<std::size_t>(count));
    return ids;
}

std::string piece(const llama_model* model, int token) {
    char bytes[256];
    const int count = llama_token_to_piece(llama_model_get_vocab(model), token, bytes, sizeof bytes, 0, false);
    return count > 0 ? std::string(bytes, static_cast<std::size_t>(count)) : std::string();
}

bool ends_text(const llama_model* model, int token) { return llama_vocab_is_eog(llama_model_get_vocab(model), token); }

std::string chat_prompt(const llama_model* model, const std::vector<std::pair<std::string, std::string>>& turns) {
    const char* form = llama_model_chat_template(model, nullptr);
    if (form == nullptr) return {};
    std::vector<llama_chat_message> messages;
    for (const auto& [role, text] : turns) messages.push_back({role.c_str(), text.c_str()});
    std::vector<char> bytes(1024);
    while (true) {
        const int size = llama_chat_apply_template(form, messages.data(), messages.size(), true, bytes.data(),
                                                   static_cast<std::int32_t>(bytes.size()));
        if (size < 0)
            throw EngineError("the model's chat template is of a kind that llama.cpp does not know; use --raw");
        if (size <= static_cast<int>(bytes.size())) return {bytes.data(), static_cast<std::size_t>(size)};
        bytes.resize(static_cast<std::size_t>(size));
    }
}

}  // namespace expertmiss::engine
