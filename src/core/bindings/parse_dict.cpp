#include <cmath>
#include <limits>
#include <stdexcept>

#include "parse.hpp"

namespace expertmiss {

DictReader::DictReader(nb::handle dict, std::string where) : where_(std::move(where)) {
    if (dict.is_none()) return;
    if (!nb::isinstance<nb::dict>(dict)) refuse("must be a mapping");
    dict_ = nb::borrow<nb::dict>(dict);
}

void DictReader::refuse(const std::string& what) const { throw std::invalid_argument(where_ + ": " + what); }

nb::object DictReader::object(const char* key) {
    asked_.insert(key);
    return dict_.contains(key) ? nb::borrow(dict_[key]) : nb::none();
}

bool DictReader::has(const char* key) { return !object(key).is_none(); }

double DictReader::number(const char* key, std::optional<double> otherwise) {
    const nb::object value = object(key);
    if (value.is_none()) {
        if (otherwise) return *otherwise;
        refuse("parameter " + std::string(key) + " is missing");
    }
    if (nb::isinstance<nb::str>(value)) {
        const std::string text = nb::cast<std::string>(value);
        if (text == "inf" || text == ".inf") return std::numeric_limits<double>::infinity();
    }
    double number = 0.0;
    if (nb::isinstance<nb::bool_>(value) || nb::isinstance<nb::str>(value) || !nb::try_cast(value, number) ||
        std::isnan(number))
        refuse(std::string(key) + " must be a number");
    return number;
}

std::int64_t DictReader::integer64(const char* key, std::optional<std::int64_t> otherwise) {
    const nb::object value = object(key);
    if (value.is_none()) {
        if (otherwise) return *otherwise;
        refuse("parameter " + std::string(key) + " is missing");
    }
    std::int64_t number = 0;
    if (nb::isinstance<nb::bool_>(value) || !nb::try_cast(value, number, false))
        refuse(std::string(key) + " must be an integer");
    return number;
}

int DictReader::integer(const char* key, std::optional<int> otherwise) {
    const std::int64_t value = integer64(key, otherwise);
    if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
        refuse(std::string(key) + " is out of range");
    return static_cast<int>(value);
}

bool DictReader::boolean(const char* key, bool otherwise) {
    const nb::object value = object(key);
    if (value.is_none()) return otherwise;
    if (!nb::isinstance<nb::bool_>(value)) refuse(std::string(key) + " must be true or false");
    return nb::cast<bool>(value);
}

std::string DictReader::text(const char* key, std::optional<std::string> otherwise) {
    const nb::object value = object(key);
    if (value.is_none()) {
        if (otherwise) return *otherwise;
        refuse(std::string(key) + " is missing");
    }
    if (!nb::isinstance<nb::str>(value)) refuse(std::string(key) + " must be a text");
    return nb::cast<std::string>(value);
}

DictReader DictReader::inner(const char* key) { return {object(key), where_ + ": " + key}; }

void DictReader::finish() const {
    for (const auto& item : dict_) {
        const std::string key = nb::cast<std::string>(nb::str(item.first));
        if (asked_.count(key) == 0 && !nb::handle(item.second).is_none()) refuse("unknown parameter '" + key + "'");
    }
}

}  // namespace expertmiss
