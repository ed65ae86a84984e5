// numpy arrays in and out without copying.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace expertmiss {

namespace nb = nanobind;

template <class T, int N>
using Input = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

/// A numpy array that owns the vector's memory.
template <class T>
nb::object to_numpy(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.begin(), owner));
}

template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    const std::size_t size = values.size();
    return to_numpy(std::move(values), {size});
}

/// An array argument inside a container; ValueError that names it when type, rank or layout differ.
template <class T, int N>
Input<T, N> take_array(nb::handle value, const std::string& name, const char* type) {
    Input<T, N> array;
    if (!nb::try_cast(value, array, false))
        throw nb::value_error(
            (name + " must be a C-contiguous " + type + " array of " + std::to_string(N) + " dimension(s)").c_str());
    return array;
}

}  // namespace expertmiss
