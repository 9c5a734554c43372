// FlashAttention forward: a block computes some rows of the output of one head, and of their scores holds only those of
// one tile of keys at a time (Dao, arXiv:2307.08691, Algorithm 1).
namespace eir::flash {

// What the rows of a warp have gathered so far. Of each 16 of them, a thread has number lane / 4 and the 8th after it;
// the 4 lanes of a row hold different columns, and `sum` is of these alone.
template <int row_tiles> struct RunningSoftmax {
    float maximum[row_tiles][2], sum[row_tiles][2];

    __device__ __forceinline__ RunningSoftmax() {
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) maximum[i][half] = -infinity(), sum[i][half] = 0;
    }

    // Scores become weights. The maximum is raised, and what `output` and `sum` have of earlier tiles is scaled to it,
    // only when for one of the warp's rows it would grow by a factor of 2^8: till then weights stay below that, which
    // is no harm (the idea is FlashAttention-4's). `scale_log2` is the scale times log2(e).
    template <int keys, int columns>
    __device__ __forceinline__ void add(
        float (&scores)[row_tiles][keys][4], float (&output)[row_tiles][columns][4], float scale_log2) {
        float top[row_tiles][2];
        bool grows = false;
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float found = maximum[i][half];
#pragma unroll
                for (int j = 0; j < keys; ++j)
                    found = fmaxf(found, fmaxf(scores[i][j][half * 2], scores[i][j][half * 2 + 1]));
                found = fmaxf(found, __shfl_xor_sync(0xffffffff, found, 1));
                top[i][half] = fmaxf(found, __shfl_xor_sync(0xffffffff, found, 2));
                grows |= (top[i][half] - maximum[i][half]) * scale_log2 > 8;
            }
        if (__any_sync(0xffffffff, grows)) {
#pragma unroll
            for (int i = 0; i < row_tiles; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float above = maximum[i][half] - finite_shift(top[i][half]);
                    rescale(i, half, exp2_approximate(above * scale_log2), output);
                    maximum[i][half] = top[i][half];
                }
        }
#pragma unroll
        for (int i = 0; i < row_tiles; ++i)
#pragma unroll
            for (int j = 0; j < keys; ++j)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    // Not s * scale - m * scale, of which the rounding of one is more than all weights if it is large.
                    const float above = scores[i][j][r] - finite_shift(maximum[i][r / 2]);
                    scores[i][j][r] = exp2_approximate(above * scale_log2);
                    sum[i][r / 2] += scores[i][j][r];
                }
    }

    template <int columns>
    __device__ __forceinline__ void rescale(int i, int half, float factor, float (&output)[row_tiles][columns][4]) {
        sum[i][half] *= factor;
#pragma unroll
        for (int j = 0; j < columns; ++j) {
            output[i][j][half * 2] *= factor;
            output[i][j][half * 2 + 1] *= factor;
        }
    }

    // Divides `output` by the sum of a row's weights. Returns the logsumexp.
    template <int columns>
    __device__ __forceinline__ float finish(int i, int half, float (&output)[row_tiles][columns][4], float scale) {
        float total = sum[i][half];
        total += __shfl_xor_sync(0xffffffff, total, 1);
        total += __shfl_xor_sync(0xffffffff, total, 2);
        rescale(i, half, total == 0 ? 1.0f : 1 / total, output);
        return finite_shift(maximum[i][half]) * scale + logf(total);
    }
};

template <class Config>
__device__ __forceinline__ void forward(
    const Sizes& sizes, View<const typename Config::type> query, View<const typename Config::type> key,
    View<const typename Config::type> value, View<const long long> visible_from, View<typename Config::type> output,
    View<float> logsumexp) {
    using T = typename Config::type;
    constexpr int threads = Config::warps * 32, row_tiles = Config::row_tiles, tile_keys = Config::stage_rows;
    constexpr int warp_rows = row_tiles * 16, rows = Config::warps * warp_rows;
    constexpr bool aligned = Config::aligned;
    using WideTile = Tile<T, Config::width>;
    using ValueTile = Tile<T, Config::value_width>;

    EIR_DYNAMIC_SHARED(shared);
    const WideTile q{reinterpret_cast<T*>(shared)}, k{q.at(rows, 0)};
    const ValueTile v{k.at(tile_keys, 0)}, result{reinterpret_cast<T*>(shared)};

    // Later rows first: with `causal` they see more keys, and a GPU had better have short work left at the end.
    const int queries = sizes.queries, keys = sizes.keys, blocks = divided_up(queries, rows);
    const int block_row = (blocks - 1 - int(blockIdx.x % blocks)) * rows;
    const Head head = head_at(blockIdx.x / blocks, sizes.inner_heads, sizes.group);
    const Matrix<const T> key_rows = key.of(head), value_rows = value.of(head);
    const int lane = threadIdx.x % 32, warp_row = warp_number() * warp_rows;
    const SeenKeys<Config::warps, row_tiles, Config::causal, Config::packed> seen(
        reinterpret_cast<int*>(v.at(tile_keys, 0)), visible_from.of(head).base, block_row, warp_row, queries, keys);

    load_rows<rows, threads, aligned>(q, query.of(head), block_row, queries);
    cp_async_commit();
    load_rows<tile_keys, threads, aligned>(k, key_rows, seen.begin, keys);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();  // queries are there
    const typename LeftOf<Config::held, T, Config::width, row_tiles>::type left{q, warp_row};

    RunningSoftmax<row_tiles> softmax;
    float sum[row_tiles][ValueTile::columns / 8][4] = {};
    for (int first_key = seen.begin; first_key < seen.end; first_key += tile_keys) {
        float scores[row_tiles][tile_keys / 8][4];
        cp_async_wait<0>();
        __syncthreads();  // the tile of keys is there, and that of values is no longer needed
        load_rows<tile_keys, threads, aligned>(v, value_rows, first_key, keys);
        cp_async_commit();
        if (seen.from(first_key)) multiply_rows(scores, left, k, 0);
        cp_async_wait<0>();
        __syncthreads();  // the tile of values is there, and that of keys is no longer needed
        const int next_key = first_key + tile_keys;
        if (next_key < seen.end) load_rows<tile_keys, threads, aligned>(k, key_rows, next_key, keys);
        cp_async_commit();
        if (seen.from(first_key)) {
            seen.mask(scores, first_key);
            softmax.add(scores, sum, sizes.scale * log2_e);
            add_product<T>(sum, scores, v, 0);
        }
    }

    float* const logsumexps = logsumexp.of(head).base;
#pragma unroll
    for (int i = 0; i < row_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float found = softmax.finish(i, half, sum, sizes.scale);
            const int row = block_row + warp_row + i * 16 + half * 8 + lane / 4;
            if (lane % 4 == 0 && row < queries) logsumexps[row] = found;
        }
    cp_async_wait<0>();
    __syncthreads();  // nothing in shared memory is needed any more
    store_result(result, warp_row, sum, 1.0f);
    __syncthreads();
    store_rows<rows, threads, aligned>(output.of(head), result, block_row, queries);
}

}  // namespace eir::flash
