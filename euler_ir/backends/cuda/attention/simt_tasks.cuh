// What a block of attention on ordinary cores has to do, and which keys a query sees.
namespace eir::simt {

// What a kernel is made for: elements of type `T`, computed in `Sum`; a block has `bands` bands of the result's
// columns. `aligned` says that every row of a matrix begins at a multiple of the bytes of a piece's elements.
template <class T_, class Sum_, int bands_, bool visible_from_, bool aligned_> struct Kind {
    using T = T_;
    using Sum = Sum_;
    static constexpr int bands = bands_, columns = bands * Tile<Sum>::band;
    static constexpr bool visible_from = visible_from_, aligned = aligned_;
};

// `inner_heads` is the inner extent of keys' batch; `group` heads of queries share one of keys. Query t sees no key
// after t + `ahead`.
template <class Sum> struct Sizes {
    int queries, keys, width, value_width, inner_heads, group, ahead;
    Sum scale;
};

// The parameters of a kernel that make up its sizes, and these.
#define EIR_SIZES(type) \
    int queries, int keys, int width, int value_width, int inner_heads, int group, int ahead, type scale
#define EIR_SIZES_OF(type) \
    eir::simt::Sizes<type> { queries, keys, width, value_width, inner_heads, group, ahead, scale }

struct Task {
    Head head;
    int first, column;  // of the block's rows and columns of the result
};

// Blocks have `columns` columns of `width` and 64 rows of `end`, of heads that come `group` to one of keys. With
// `last_first` a head's last rows come first: if they see the most keys, the longest task does not begin last.
template <int columns, bool last_first>
__device__ __forceinline__ Task task_of_block(int width, int end, int inner_heads, int group) {
    const int parts = (width + columns - 1) / columns, blocks = (end + rows - 1) / rows;
    const unsigned number = blockIdx.x / parts;
    const int part = int(blockIdx.x % parts), block = int(number % blocks);
    return {
        head_at(number / blocks, inner_heads, group),
        (last_first ? blocks - 1 - block : block) * rows,
        part * columns,
    };
}

// Which keys a query sees: up to `ahead` after its own number, and from the one on that visible_from says.
template <class Kind> struct Visible {
    int queries, keys, ahead;

    __device__ __forceinline__ int last_key(int query) const { return min(query + ahead, keys - 1); }
    __device__ __forceinline__ int first_query(int key) const { return max(key - ahead, 0); }
    __device__ __forceinline__ int first_key(const Matrix<const long long> &visible_from, int query) const {
        if (!Kind::visible_from || query >= queries) return 0;
        return int(max(min(*visible_from.row(query), (long long)(keys)), 0LL));
    }
    __device__ __forceinline__ bool is(int query, int first_key, int key) const {
        return query < queries && key <= last_key(query) && (!Kind::visible_from || key >= first_key);
    }
    // Whether all of some neighbouring queries see all of some neighbouring keys.
    __device__ __forceinline__ bool all(int first_query, int last_query, int last_seen) const {
        return !Kind::visible_from && last_query < queries && last_seen <= last_key(first_query);
    }
    // Whether some thread of the block has `seen` a key of the tile. A barrier, if visible_from may hide one.
    __device__ __forceinline__ bool any(bool seen) const { return !Kind::visible_from || __syncthreads_or(seen); }
};

// -- sums over the lanes that share a row -----------------------------------------------------------------------------

template <class Sum> __device__ __forceinline__ Sum highest_of_row(Sum value) {
    for (int step = 1; step < lanes; step *= 2) {
        const Sum other = __shfl_xor_sync(0xffffffff, value, step);
        value = other > value ? other : value;
    }
    return value;
}

template <class Sum> __device__ __forceinline__ Sum sum_of_row(Sum value) {
    for (int step = 1; step < lanes; step *= 2) value += __shfl_xor_sync(0xffffffff, value, step);
    return value;
}

}  // namespace eir::simt
