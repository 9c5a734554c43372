// Which keys a query sees: those from a first one on, and with `causal` none after its own. The last query is then at
// the last key, also where there are fewer queries than keys, or more.

namespace eir::flash {

// The first key that `row` does not see because of its place.
template <bool causal> __device__ __forceinline__ int visible_end(int row, int queries, int keys) {
    return causal ? min(keys, row + 1 - queries + keys) : keys;
}

// The first key that `row` sees, given the `visible_from` of each query: none where there is no such row.
__device__ __forceinline__ int visible_begin(const long long* visible_from, int row, int queries, int keys) {
    return row < queries ? int(max(0LL, min(visible_from[row], (long long)keys))) : keys;
}

// The keys that rows see, of a block whose warps have 16 `row_tiles` rows each: 0 to `end` - 1 at most, and with
// `visible_from`, where texts are `packed` into rows, from `begin` on.
template <int warps, int row_tiles, bool causal, bool packed> struct SeenKeys {
    static constexpr int warp_rows = row_tiles * 16, rows = warps * warp_rows;
    static constexpr int bytes = packed ? rows * int(sizeof(int)) : 0;

    int queries, keys, first_row, begin, end, warp_end, latest_begin;
    int* row_begin;

    // Needs `bytes` of shared memory. All threads of the block take part.
    __device__ __forceinline__ SeenKeys(
        int* shared, const long long* visible_from, int block_row, int warp_row, int queries, int keys)
        : queries(queries), keys(keys), first_row(block_row + warp_row), begin(0), latest_begin(0), row_begin(shared) {
        end = visible_end<causal>(min(block_row + rows, queries) - 1, queries, keys);
        warp_end = first_row < queries ? visible_end<causal>(first_row + warp_rows - 1, queries, keys) : 0;
        if (!packed) return;
        for (int row = threadIdx.x; row < rows; row += warps * 32)
            row_begin[row] = visible_begin(visible_from, block_row + row, queries, keys);
        __syncthreads();
        begin = keys;
        for (int row = threadIdx.x % 32; row < rows; row += 32) begin = min(begin, row_begin[row]);
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            begin = min(begin, __shfl_xor_sync(0xffffffff, begin, distance));
        for (int row = threadIdx.x % 32 / 4; row < warp_rows; row += 8)
            latest_begin = max(latest_begin, row_begin[warp_row + row]);
    }

    // Whether a row of this warp sees a key after `first_key`: the same for all lanes.
    __device__ __forceinline__ bool from(int first_key) const { return first_key < warp_end; }

    // Scores of 8 `columns` keys from `first_key` on become -inf where a row of this warp does not see them.
    template <int columns>
    __device__ __forceinline__ void mask(float (&scores)[row_tiles][columns][4], int first_key) const {
        const int all_end = visible_end<causal>(first_row, queries, keys);
        if (first_key + columns * 8 <= all_end && first_key >= latest_begin) return;
        const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * warp_rows, column = first_key + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = i * 16 + half * 8 + lane / 4;
                const int own_end = visible_end<causal>(first_row + row, queries, keys) - column;
                const int own_begin = packed ? row_begin[warp_row + row] - column : 0;
#pragma unroll
                for (int j = 0; j < columns; ++j)
#pragma unroll
                    for (int r = 0; r < 2; ++r)
                        if (j * 8 + r >= own_end || (packed && j * 8 + r < own_begin))
                            scores[i][j][half * 2 + r] = -infinity();
            }
    }
};

// The same of scores with keys as rows, from `first_key` on: of 8 `columns` queries from `first_query` on, whose first
// visible keys are at `begins`.
template <bool causal, bool packed, int row_tiles, int columns>
__device__ __forceinline__ void mask_keys(
    float (&scores)[row_tiles][columns][4], int first_key, int first_query, const int* begins, int queries, int keys) {
    const int lane = threadIdx.x % 32, own_key = first_key + lane / 4;
#pragma unroll
    for (int j = 0; j < columns; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int column = j * 8 + lane % 4 * 2 + r;
            const int end = visible_end<causal>(first_query + column, queries, keys) - own_key;
            const int begin = packed ? begins[column] - own_key : 0;
#pragma unroll
            for (int i = 0; i < row_tiles; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    if (i * 16 + half * 8 >= end || (packed && i * 16 + half * 8 < begin))
                        scores[i][j][half * 2 + r] = -infinity();
        }
}

}  // namespace eir::flash
