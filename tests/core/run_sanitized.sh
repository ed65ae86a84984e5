#!/usr/bin/env bash
# The core's tests under ASan and UBSan, with the definitions' invariants checked at every step (`make asan`).
# Builds into build/asan. PYTHON names an interpreter with the package's development dependencies.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$(realpath --no-symlinks "${PYTHON:-.venv/bin/python}")
build=$PWD/build/asan
export PATH="$(dirname "$python"):$PATH" # cmake and ninja as pip installs them

cmake -S . -B "$build" -G Ninja -DPython_EXECUTABLE="$python" -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" \
    -DEXPERTMISS_SANITIZE=ON -DEXPERTMISS_ASSERT=ON --log-level=WARNING
cmake --build "$build" -- --quiet

# The interpreter is not linked to the sanitizers, so they must be there before it starts; libstdc++ too, whose throw ASan watches.
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
runtimes=()
for name in libasan.so libubsan.so libstdc++.so; do
    runtimes+=("$(realpath "$("$compiler" -print-file-name="$name")")")
done
module=$(find "$build" -name '_core*.so')
echo "sanitized core: $module"

# Reports go to files: what a dying process prints, pytest has captured.
reports=$build/report
rm -f "$reports".*
export ASAN_OPTIONS=detect_leaks=0:log_path=$reports UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONMALLOC=malloc EXPERTMISS_SANITIZED_CORE=$module PYTHONPATH=$PWD/tests/core

# Left out: libcachesim, whose own code ASan stops, and the slow tests, which spend their time in the oracle.
status=0
LD_PRELOAD="${runtimes[*]}" "$python" -m pytest tests/core -p sanitized_core -p no:cacheprovider --numprocesses 2 --max-worker-restart 0 --quiet \
    --ignore tests/core/test_libcachesim.py -m "not slow" "$@" || status=$?
for report in "$reports".*; do
    if [ -s "$report" ]; then
        cat "$report"
        status=1
    fi
done
exit "$status"
