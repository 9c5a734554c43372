// The gradients of attention on ordinary cores (Dao et al., arXiv:2205.14135, appendix B): each by a kernel of its own,
// which computes the weights again from the logsumexp. No two blocks write one element, and every sum has one order.
//
// A block has 64 rows of the result, queries or keys, and some of its columns; it goes over tiles of the other side.
namespace eir::simt {

enum class By { query, key, value };

template <class Kind, By by>
__device__ __forceinline__ void gradient(
    const Sizes<typename Kind::Sum> &sizes, View<const typename Kind::T> queries, View<const typename Kind::T> keys,
    View<const typename Kind::T> values, View<const typename Kind::Sum> logsumexps,
    View<const typename Kind::T> d_outputs, View<const typename Kind::Sum> deltas, View<const long long> visible_froms,
    View<typename Kind::T> results) {
    using Sum = typename Kind::Sum;
    using tile = Tile<Sum>;
    constexpr bool rows_are_queries = by == By::query;
    constexpr int thread_queries = rows_are_queries ? thread_rows : tile::thread_columns;
    EIR_SHARED(Sum, weights, rows * tile::leading);
    EIR_SHARED(Sum, other_tile, tile::columns * tile::leading);

    const Place place = place_of_thread();
    const int width = by == By::value ? sizes.value_width : sizes.width;
    const int end_of_rows = rows_are_queries ? sizes.queries : sizes.keys;
    const Task task = task_of_block<Kind::columns, rows_are_queries>(
        width, end_of_rows, sizes.inner_heads, rows_are_queries ? sizes.group : 1);
    const Visible<Kind> visible{sizes.queries, sizes.keys, sizes.ahead};
    const int last_row = min(task.first + rows, end_of_rows) - 1;
    const int begin = rows_are_queries ? 0 : visible.first_query(task.first);
    const int end = rows_are_queries ? visible.last_key(last_row) + 1 : sizes.queries;
    // The queries of a thread: those of its rows, or of its columns of the tile that begins at `first`.
    const auto query_at = [&](int n, int first) {
        return rows_are_queries ? task.first + place.row_at(n) : first + place.column_at(n);
    };
    Sums<Sum, Kind::bands> sums = {};
    Head head = task.head;
    const int members = rows_are_queries ? 1 : sizes.group;  // heads of queries that a block of keys sums over
    for (int member = 0; member < members; ++member) {
        if (!rows_are_queries) head.member = member;
        const auto query = queries.of(head), key = keys.of(head), value = values.of(head);
        const auto d_output = d_outputs.of(head);
        const auto logsumexp = logsumexps.of(head), delta = deltas.of(head);
        const auto visible_from = visible_froms.of(head);
        for (int first = begin; first < end; first += tile::columns) {
            const auto first_key = [&](int n) { return visible.first_key(visible_from, query_at(n, first)); };
            bool seen = false;
#pragma unroll
            for (int n = 0; n < thread_queries; ++n)
                seen |= first_key(n) <= (rows_are_queries ? first + tile::columns - 1 : last_row);
            if (!visible.any(seen)) continue;

            Scores<Sum> scores, by_weights;
            multiply<Kind::aligned>(
                scores, weights, other_tile, place, sizes.width, rows_are_queries ? query : key, task.first,
                end_of_rows, rows_are_queries ? key : query, first, end);
            if (by != By::value)
                multiply<Kind::aligned>(
                    by_weights, weights, other_tile, place, sizes.value_width, rows_are_queries ? d_output : value,
                    task.first, end_of_rows, rows_are_queries ? value : d_output, first, end);

            int first_keys[thread_queries];
            Sum shifts[thread_queries], means[thread_queries];
#pragma unroll
            for (int n = 0; n < thread_queries; ++n) {
                const int at = min(query_at(n, first), sizes.queries - 1);
                first_keys[n] = first_key(n);
                shifts[n] = finite_shift(*logsumexp.row(at));
                means[n] = by == By::value ? Sum(0) : *delta.row(at);
            }
#pragma unroll
            for (int i = 0; i < thread_rows; ++i)
#pragma unroll
                for (int j = 0; j < tile::thread_columns; ++j) {
                    const int n = rows_are_queries ? i : j;
                    const int at_key = rows_are_queries ? first + place.column_at(j) : task.first + place.row_at(i);
                    Sum weight = exponential(rounded_product(scores[i][j], sizes.scale) - shifts[n]);
                    if (by != By::value) weight = weight * (by_weights[i][j] - means[n]) * sizes.scale;
                    if (!visible.is(query_at(n, first), first_keys[n], at_key)) weight = 0;
                    weights[place.row_at(i) * tile::leading + place.column_at(j)] = weight;
                }
            add_products<Kind::bands, Kind::aligned>(
                sums, weights, other_tile, place, by == By::query ? key : by == By::key ? query : d_output, first, end,
                task.column, width);
        }
    }
    store_sums<Kind::bands, Kind::aligned>(
        sums, place, results.of(task.head), task.first, end_of_rows, task.column, width);
}

}  // namespace eir::simt
