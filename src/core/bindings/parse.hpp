// Python dicts to the core's structs. Unknown and missing keys are refused; expertmiss.policies words it for people.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <set>
#include <string>

#include "model.hpp"
#include "policy.hpp"

namespace expertmiss {

namespace nb = nanobind;

/// Reads one dict; None counts as absent. Every failure is a std::invalid_argument that starts with `where`.
class DictReader {
  public:
    DictReader(nb::handle dict, std::string where);

    bool has(const char* key);
    double number(const char* key, std::optional<double> otherwise = {});  // also the strings "inf" and ".inf"
    int integer(const char* key, std::optional<int> otherwise = {});
    std::int64_t integer64(const char* key, std::optional<std::int64_t> otherwise = {});
    bool boolean(const char* key, bool otherwise);
    std::string text(const char* key, std::optional<std::string> otherwise = {});
    nb::object object(const char* key);  // None when absent
    DictReader inner(const char* key);   // an empty one when absent
    /// Refuses keys that nobody asked for.
    void finish() const;
    [[noreturn]] void refuse(const std::string& what) const;

    /// The value of `names` that the text at `key` names.
    template <class Value>
    Value choice(const char* key, std::initializer_list<std::pair<const char*, Value>> names,
                 std::optional<std::string> otherwise = {}) {
        const std::string name = text(key, otherwise);
        for (const auto& [known, value] : names)
            if (name == known) return value;
        refuse("unknown " + std::string(key) + " '" + name + "'");
    }

  private:
    nb::dict dict_;
    std::string where_;
    std::set<std::string> asked_;
};

Model parse_model(nb::dict meta);
/// `seed`: of choosers that name none. `mutant`: a name of kMutantNames.
Policy parse_policy(nb::dict policy, std::int64_t seed, const std::optional<std::string>& mutant);

}  // namespace expertmiss
