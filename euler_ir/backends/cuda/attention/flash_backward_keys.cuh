// FlashAttention backward, gradients of keys and values: a block has some keys and values of one head, and passes over
// the queries that see them, of all heads that share them (Dao, arXiv:2307.08691, Algorithm 2, without dQ).
// Warps compute scores with their keys as rows, so that weights stay in registers as left operands of what follows.
namespace eir::flash {

// What a tile of queries needs in shared memory. There are two: while one is worked on, the next arrives.
template <class Config> struct QueryStage {
    using T = typename Config::type;
    static constexpr int rows = Config::stage_rows;
    static constexpr int bytes =
        rows * ((Tile<T, Config::width>::pitch + Tile<T, Config::value_width>::pitch) * int(sizeof(T)) + 12);

    Tile<T, Config::width> query;
    Tile<T, Config::value_width> d_output;
    float* shift;  // the logsumexp
    float* delta;
    int* begin;  // the first key that each query sees

    __device__ __forceinline__ QueryStage(unsigned char* stages, int pass)
        : query{reinterpret_cast<T*>(stages + pass % 2 * bytes)}, d_output{query.at(rows, 0)},
          shift(reinterpret_cast<float*>(d_output.at(rows, 0))), delta(shift + rows),
          begin(reinterpret_cast<int*>(delta + rows)) {}
};

template <class Config>
__device__ __forceinline__ void backward_keys(
    const Sizes& sizes, View<const typename Config::type> query, View<const typename Config::type> key,
    View<const typename Config::type> value, View<const float> logsumexp, View<const typename Config::type> d_output,
    View<const float> delta, View<const long long> visible_from, View<typename Config::type> d_key,
    View<typename Config::type> d_value) {
    using T = typename Config::type;
    using Stage = QueryStage<Config>;
    constexpr int threads = Config::warps * 32, row_tiles = Config::row_tiles, step = Config::step_rows;
    constexpr int warp_keys = row_tiles * 16, rows = Config::warps * warp_keys;
    constexpr bool aligned = Config::aligned, causal = Config::causal, packed = Config::packed;
    static_assert(Stage::rows <= threads && Stage::rows % step == 0, "a thread fetches the numbers of one query");

    EIR_DYNAMIC_SHARED(shared);
    const Tile<T, Config::width> k{reinterpret_cast<T*>(shared)};
    const Tile<T, Config::value_width> v{k.at(rows, 0)};
    unsigned char* const stages = reinterpret_cast<unsigned char*>(v.at(rows, 0));

    // Early keys first: with `causal` more queries see them.
    const int queries = sizes.queries, keys = sizes.keys, blocks = divided_up(keys, rows);
    const int block_key = int(blockIdx.x % blocks) * rows;
    const Head head = head_at(blockIdx.x / blocks, sizes.inner_heads, 1);
    const int lane = threadIdx.x % 32, warp_row = warp_number() * warp_keys;
    const int first_key = block_key + warp_row;

    // Tiles of queries that are all before the block's keys are not read.
    const int first_query = causal ? max(0, block_key + queries - keys) / Stage::rows * Stage::rows : 0;
    const int tiles = divided_up(queries - first_query, Stage::rows), passes = tiles * sizes.group;

    float next_shift, next_delta;
    const auto fetch = [&](int pass) {
        const Head of_query = {head.outer, head.inner, pass / tiles};
        const Stage stage(stages, pass);
        const int tile = first_query + pass % tiles * Stage::rows, row = tile + threadIdx.x;
        load_rows<Stage::rows, threads, aligned>(stage.query, query.of(of_query), tile, queries);
        load_rows<Stage::rows, threads, aligned>(stage.d_output, d_output.of(of_query), tile, queries);
        cp_async_commit();
        const bool is_row = threadIdx.x < Stage::rows && row < queries;
        next_shift = is_row ? finite_shift(logsumexp.of(of_query).base[row]) : infinity();  // so weights are 0
        next_delta = is_row ? delta.of(of_query).base[row] : 0.0f;
        if (packed && threadIdx.x < Stage::rows)
            stage.begin[threadIdx.x] = visible_begin(visible_from.of(of_query).base, row, queries, keys);
    };
    const auto keep = [&](int pass) {
        const Stage stage(stages, pass);
        if (threadIdx.x >= Stage::rows) return;
        stage.shift[threadIdx.x] = next_shift;
        stage.delta[threadIdx.x] = next_delta;
    };

    load_rows<rows, threads, aligned>(k, key.of(head), block_key, keys);
    load_rows<rows, threads, aligned>(v, value.of(head), block_key, keys);
    cp_async_commit();  // also where no query follows: what lands later would overwrite the results
    if (passes > 0) fetch(0), keep(0);
    cp_async_wait<0>();
    __syncthreads();

    const LeftInTile<T, Config::width, row_tiles> key_rows{k, warp_row};
    const LeftInTile<T, Config::value_width, row_tiles> value_rows{v, warp_row};
    float key_sum[row_tiles][Tile<T, Config::width>::columns / 8][4] = {};
    float value_sum[row_tiles][Tile<T, Config::value_width>::columns / 8][4] = {};
    for (int pass = 0; pass < passes; ++pass) {
        const Stage stage(stages, pass);
        if (pass + 1 < passes) fetch(pass + 1);
#pragma unroll 1
        for (int at = 0; at < Stage::rows; at += step) {
            const int row = first_query + pass % tiles * Stage::rows + at;
            if (first_key >= visible_end<causal>(row + step - 1, queries, keys)) continue;
            bool all_seen = first_key + warp_keys <= visible_end<causal>(row, queries, keys);
            if (packed) {
                bool any = false, all = true;
                for (int column = at + lane; column < at + step; column += 32) {
                    any |= stage.begin[column] < first_key + warp_keys;
                    all &= stage.begin[column] <= first_key;
                }
                if (!__any_sync(0xffffffff, any)) continue;
                all_seen &= __all_sync(0xffffffff, all);
            }

            float weights[row_tiles][step / 8][4], gradients[row_tiles][step / 8][4];
            multiply_rows(weights, key_rows, stage.query, at);
            if (!all_seen)
                mask_keys<causal, packed>(weights, first_key, row, packed ? stage.begin + at : nullptr, queries, keys);
#pragma unroll
            for (int j = 0; j < step / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const float shift = stage.shift[at + j * 8 + lane % 4 * 2 + r];
#pragma unroll
                    for (int i = 0; i < row_tiles; ++i)
#pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            float& weight = weights[i][j][half * 2 + r];
                            weight = weight_of(weight, sizes.scale, shift);
                        }
                }
            add_product<T>(value_sum, weights, stage.d_output, at);
            multiply_rows(gradients, value_rows, stage.d_output, at);
#pragma unroll
            for (int j = 0; j < step / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const float mean = stage.delta[at + j * 8 + lane % 4 * 2 + r];
#pragma unroll
                    for (int i = 0; i < row_tiles; ++i)
#pragma unroll
                        for (int half = 0; half < 2; ++half) {
                            float& gradient = gradients[i][j][half * 2 + r];
                            gradient = weights[i][j][half * 2 + r] * (gradient - mean);
                        }
                }
            add_product<T>(key_sum, gradients, stage.query, at);
        }
        if (pass + 1 < passes) keep(pass + 1);
        cp_async_wait<0>();
        __syncthreads();  // the next tile of queries is there, and this one is no longer needed
    }

    store_result(k, warp_row, key_sum, sizes.scale);
    store_result(v, warp_row, value_sum, 1.0f);
    __syncthreads();
    store_rows<rows, threads, aligned>(d_key.of(head), k, block_key, keys);
    store_rows<rows, threads, aligned>(d_value.of(head), v, block_key, keys);
}

}  // namespace eir::flash
