# Writes HEADER with the SHA-256 over SOURCE_DIR: of one line "<sha256> <path>" per source, sorted by path.
# expertmiss.policies.freshness computes the same number in Python.
file(GLOB_RECURSE sources RELATIVE ${SOURCE_DIR}
  ${SOURCE_DIR}/*.cpp ${SOURCE_DIR}/*.hpp ${SOURCE_DIR}/*.cmake ${SOURCE_DIR}/CMakeLists.txt)
list(SORT sources COMPARE STRING)
set(listing "")
foreach(source IN LISTS sources)
  file(SHA256 ${SOURCE_DIR}/${source} digest)
  string(APPEND listing "${digest} ${source}\n")
endforeach()
string(SHA256 hash "${listing}")
file(WRITE ${HEADER} "#pragma once\n#define EXPERTMISS_SOURCE_HASH \"${hash}\"\n")
