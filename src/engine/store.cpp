#include "store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "error.hpp"
#include "host_memory.hpp"

namespace expertmiss::engine {
namespace {

constexpr std::uint64_t kAlign = kReadAlign;

/// A block for every thread.
std::vector<HostBlock> blocks_for(const StoreUse& use, std::uint64_t size) {
    std::vector<HostBlock> blocks;
    for (int thread = 0; thread < use.threads; ++thread) blocks.push_back(host_block(use.device, size));
    return blocks;
}

class Descriptors {
  public:
    Descriptors(const std::vector<std::string>& paths, int flags) {
        for (const auto& path : paths) {
            const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
            if (descriptor < 0) {
                const bool refused = errno == EINVAL && flags != 0;
                throw EngineError(path + (refused ? ": its file system has no direct reads; choose the store 'mapped'"
                                                  : std::string(": cannot be read (") + std::strerror(errno) + ")"));
            }
            all_.push_back(descriptor);
        }
    }
    ~Descriptors() {
        for (const int descriptor : all_) close(descriptor);
    }
    Descriptors(const Descriptors&) = delete;
    Descriptors& operator=(const Descriptors&) = delete;
    int operator[](int file) const { return all_[file]; }

  private:
    std::vector<int> all_;
};

class DirectStore final : public Store {
  public:
    DirectStore(const GgufFile& file, const StoreUse& use)
        : paths_(file.paths),
          files_(file.paths, O_DIRECT),
          scratch_(blocks_for(use, (use.largest / kAlign + 2) * kAlign)) {}

    const char* read(const Extent& extent, int thread) override {
        char* const buffer = scratch_[thread].bytes;
        const std::uint64_t begin = extent.offset / kAlign * kAlign;
        const std::uint64_t skipped = extent.offset - begin, wanted = skipped + extent.size;
        std::uint64_t got = 0;
        while (got < wanted) {  // a read may be cut; what follows stays aligned except at the end of the file
            const std::uint64_t length = (wanted - got + kAlign - 1) / kAlign * kAlign;
            const ssize_t count = pread(files_[extent.file], buffer + got, length, static_cast<off_t>(begin + got));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0)
                throw EngineError(paths_[extent.file] + ": an expert cannot be read at byte " +
                                  std::to_string(begin + got) + " (" +
                                  (count == 0 ? "the file has become shorter" : std::strerror(errno)) + ")");
            got += static_cast<std::uint64_t>(count);
        }
        return buffer + skipped;
    }

    bool waits() const override { return true; }

  private:
    const std::vector<std::string> paths_;
    Descriptors files_;
    const std::vector<HostBlock> scratch_;  // by thread
};

class MappedStore final : public Store {
  public:
    MappedStore(const GgufFile& file, const StoreUse& use) {
        if (has_pinned_memory(use.device)) pinned_ = blocks_for(use, use.largest);
        const Descriptors files(file.paths, 0);
        for (std::size_t part = 0; part < file.paths.size(); ++part) {
            const std::size_t size = std::filesystem::file_size(file.paths[part]);
            void* bytes = mmap(nullptr, size, PROT_READ, MAP_SHARED, files[static_cast<int>(part)], 0);
            if (bytes == MAP_FAILED)
                throw EngineError(file.paths[part] + ": cannot be mapped (" + std::strerror(errno) + ")");
            madvise(bytes, size, MADV_RANDOM);  // read-ahead would fetch far more than one expert
            maps_.push_back({static_cast<const char*>(bytes), size});
        }
    }
    ~MappedStore() override {
        for (const auto& [bytes, size] : maps_) munmap(const_cast<char*>(bytes), size);
    }

    const char* read(const Extent& extent, int thread) override {
        const char* const bytes = maps_[extent.file].first + extent.offset;
        // One call brings in all of the expert's pages; without it each of them is a fault of its own. Older kernels
        // refuse.
        const auto begin = reinterpret_cast<std::uintptr_t>(bytes) / kAlign * kAlign;
        const auto end = reinterpret_cast<std::uintptr_t>(bytes) + extent.size;
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
        if (pinned_.empty()) return bytes;
        std::memcpy(pinned_[thread].bytes, bytes, extent.size);
        return pinned_[thread].bytes;
    }
    bool waits() const override { return false; }

  private:
    std::vector<std::pair<const char*, std::size_t>> maps_;
    std::vector<HostBlock> pinned_;  // by thread; none: the mapping itself is copied from
};

}  // namespace

std::unique_ptr<Store> open_direct(const GgufFile& file, const StoreUse& use) {
    return std::make_unique<DirectStore>(file, use);
}

std::unique_ptr<Store> open_mapped(const GgufFile& file, const StoreUse& use) {
    return std::make_unique<MappedStore>(file, use);
}

}  // namespace expertmiss::engine
