// FlashAttention backward, gradient of queries: a block holds some queries of one head, and passes over all keys that
// they see. It computes again the scores that the kernel of keys and values has had too: that is the price of sums in
// one order, and so of the same bits in every run.

namespace eir::flash {

template <class Config>
__device__ __forceinline__ void backward_queries(
    const Sizes& sizes, View<const typename Config::type> query, View<const typename Config::type> key,
    View<const typename Config::type> value, View<const float> logsumexp, View<const typename Config::type> d_output,
    View<const float> delta, View<const long long> visible_from, View<typename Config::type> d_query) {
    using T = typename Config::type;
    constexpr int threads = Config::warps * 32, row_tiles = Config::row_tiles, tile_keys = Config::stage_rows;
    constexpr int warp_rows = row_tiles * 16, rows = Config::warps * warp_rows, step = Config::step_rows;
    constexpr bool aligned = Config::aligned;
    using WideTile = Tile<T, Config::width>;
    using ValueTile = Tile<T, Config::value_width>;

    EIR_DYNAMIC_SHARED(shared);
    const WideTile q{reinterpret_cast<T*>(shared)}, k{q.at(rows, 0)};  // two tiles of keys, and of values:
    const ValueTile d_out{k.at(2 * tile_keys, 0)}, v{d_out.at(rows, 0)};  // while one is worked on, the next arrives

    const int queries = sizes.queries, keys = sizes.keys, blocks = divided_up(queries, rows);
    const int block_row = (blocks - 1 - int(blockIdx.x % blocks)) * rows;
    const Head head = head_at(blockIdx.x / blocks, sizes.inner_heads, sizes.group);
    const Matrix<const T> key_rows = key.of(head), value_rows = value.of(head);
    const int lane = threadIdx.x % 32, warp_row = warp_number() * warp_rows;
    const SeenKeys<Config::warps, row_tiles, Config::causal, Config::packed> seen(
        reinterpret_cast<int*>(v.at(2 * tile_keys, 0)), visible_from.of(head).base, block_row, warp_row, queries, keys);

    const auto fetch = [&](int first_key, int stage) {
        const WideTile next_keys{k.at(stage * tile_keys, 0)};
        const ValueTile next_values{v.at(stage * tile_keys, 0)};
        load_rows<tile_keys, threads, aligned>(next_keys, key_rows, first_key, keys);
        load_rows<tile_keys, threads, aligned>(next_values, value_rows, first_key, keys);
        cp_async_commit();
    };
    load_rows<rows, threads, aligned>(q, query.of(head), block_row, queries);
    load_rows<rows, threads, aligned>(d_out, d_output.of(head), block_row, queries);
    fetch(seen.begin, 0);

    float shift[row_tiles][2], mean[row_tiles][2];  // the logsumexp; delta
#pragma unroll
    for (int i = 0; i < row_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = block_row + warp_row + i * 16 + half * 8 + lane / 4;
            shift[i][half] = row < queries ? finite_shift(logsumexp.of(head).base[row]) : 0.0f;
            mean[i][half] = row < queries ? delta.of(head).base[row] : 0.0f;
        }

    const LeftInTile<T, Config::width, row_tiles> query_fragments{q, warp_row};
    const LeftInTile<T, Config::value_width, row_tiles> d_output_fragments{d_out, warp_row};
    float sum[row_tiles][WideTile::columns / 8][4] = {};
    int stage = 0;
    for (int first_key = seen.begin; first_key < seen.end; first_key += tile_keys, stage ^= 1) {
        cp_async_wait<0>();
        __syncthreads();  // this tile of keys is there, and the one before is no longer needed
        if (first_key + tile_keys < seen.end) fetch(first_key + tile_keys, stage ^ 1);
#pragma unroll 1
        for (int at = 0; at < tile_keys; at += step) {
            if (!seen.from(first_key + at)) break;
            const int row = stage * tile_keys + at;
            float scores[row_tiles][step / 8][4], gradients[row_tiles][step / 8][4];
            multiply_rows(scores, query_fragments, k, row);
            seen.mask(scores, first_key + at);
            multiply_rows(gradients, d_output_fragments, v, row);
#pragma unroll
            for (int i = 0; i < row_tiles; ++i)
#pragma unroll
                for (int j = 0; j < step / 8; ++j)
#pragma unroll
                    for (int r = 0; r < 4; ++r) {
                        const float weight = weight_of(scores[i][j][r], sizes.scale, shift[i][r / 2]);
                        gradients[i][j][r] = weight * (gradients[i][j][r] - mean[i][r / 2]);
                    }
            add_product<T>(sum, gradients, k, row);
        }
    }

    cp_async_wait<0>();
    __syncthreads();  // nothing in shared memory is needed any more
    store_result(q, warp_row, sum, sizes.scale);
    __syncthreads();
    store_rows<rows, threads, aligned>(d_query.of(head), q, block_row, queries);
}

}  // namespace eir::flash
