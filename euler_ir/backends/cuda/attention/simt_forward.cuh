// Attention with a running softmax on ordinary cores (Dao et al., arXiv:2205.14135 and 2307.08691).
//
// A block has 64 queries of one head and some columns of its values; where values are wider than a block can sum,
// others compute the weights again for the rest.
namespace eir::simt {

template <class Kind>
__device__ __forceinline__ void forward(
    const Sizes<typename Kind::Sum> &sizes, View<const typename Kind::T> queries, View<const typename Kind::T> keys,
    View<const typename Kind::T> values, View<const long long> visible_froms, View<typename Kind::T> outputs,
    View<typename Kind::Sum> logsumexps) {
    using Sum = typename Kind::Sum;
    using tile = Tile<Sum>;
    EIR_SHARED(Sum, weights, rows * tile::leading);
    EIR_SHARED(Sum, other_tile, tile::columns * tile::leading);

    const Place place = place_of_thread();
    const Task task =
        task_of_block<Kind::columns, true>(sizes.value_width, sizes.queries, sizes.inner_heads, sizes.group);
    const auto query = queries.of(task.head), key = keys.of(task.head), value = values.of(task.head);
    const auto visible_from = visible_froms.of(task.head);
    const Visible<Kind> visible{sizes.queries, sizes.keys, sizes.ahead};
    const auto first_key = [&](int i) { return visible.first_key(visible_from, task.first + place.row_at(i)); };

    Sum tops[thread_rows], totals[thread_rows];  // a thread's totals are those of its columns
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) tops[i] = -infinity<Sum>(), totals[i] = 0;
    Sums<Sum, Kind::bands> sums = {};
    const int end = visible.last_key(min(task.first + rows, sizes.queries) - 1) + 1;
    for (int first = 0; first < end; first += tile::columns) {
        const int last = first + tile::columns - 1;
        bool seen = false;
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) seen |= first_key(i) <= last;
        if (!visible.any(seen)) continue;
        Scores<Sum> scores;
        multiply<Kind::aligned>(
            scores, weights, other_tile, place, sizes.width, query, task.first, sizes.queries, key, first, end);
        const bool all = visible.all(task.first, task.first + rows - 1, last);
#pragma unroll
        for (int i = 0; i < thread_rows; ++i) {
            const int begin = first_key(i);
            Sum top = tops[i];  // a NaN is passed over here, and comes out of exp
#pragma unroll
            for (int j = 0; j < tile::thread_columns; ++j) {
                const int row = task.first + place.row_at(i), column = first + place.column_at(j);
                const bool is_seen = all || visible.is(row, begin, column);
                scores[i][j] = is_seen ? rounded_product(scores[i][j], sizes.scale) : -infinity<Sum>();
                top = scores[i][j] > top ? scores[i][j] : top;
            }
            top = highest_of_row(top);
            const Sum shift = finite_shift(top), factor = exponential(tops[i] - shift);
            tops[i] = top;
            totals[i] *= factor;
#pragma unroll
            for (auto &band : sums)
#pragma unroll
                for (auto &sum : band[i]) sum *= factor;
#pragma unroll
            for (int j = 0; j < tile::thread_columns; ++j) {
                const Sum weight = exponential(scores[i][j] - shift);
                totals[i] += weight;
                weights[place.row_at(i) * tile::leading + place.column_at(j)] = weight;
            }
        }
        add_products<Kind::bands, Kind::aligned>(
            sums, weights, other_tile, place, value, first, end, task.column, sizes.value_width);
    }

    const auto logsumexp = logsumexps.of(task.head);
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) {
        const Sum total = sum_of_row(totals[i]), factor = 1 / (total == 0 ? Sum(1) : total);
#pragma unroll
        for (auto &band : sums)
#pragma unroll
            for (auto &sum : band[i]) sum *= factor;
        const int row = task.first + place.row_at(i);
        if (task.column == 0 && place.column == 0 && row < sizes.queries)
            *logsumexp.row(row) = logarithm(total) + finite_shift(tops[i]);
    }
    store_sums<Kind::bands, Kind::aligned>(
        sums, place, outputs.of(task.head), task.first, sizes.queries, task.column, sizes.value_width);
}

}  // namespace eir::simt
