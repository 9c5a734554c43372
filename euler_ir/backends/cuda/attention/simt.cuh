// What attention on ordinary cores is made of: products of tiles, summed in registers, with both operands in shared
// memory (the scheme of NVIDIA's CUTLASS: "Efficient GEMM in CUDA").
//
// A block of 128 threads owns 64 rows. A warp owns 16 of them, so that what belongs to a row never leaves a warp; 8
// lanes share a row. Elements lie in pieces of 16 bytes, and rows in shared memory are an odd number of pieces apart:
// 8 lanes that read a piece of 8 rows each meet all banks once.
namespace eir::simt {

constexpr int threads = 128, warp_rows = 16;
constexpr int rows = 64;         // of a block
constexpr int row_step = 4;      // between rows of a thread
constexpr int thread_rows = 4;
constexpr int lanes = 8;         // that share a row
constexpr int row_pieces = 16;   // of a tile in shared memory

template <class Sum> struct alignas(16) Piece {
    static constexpr int size = 16 / sizeof(Sum);
    Sum at[size];
};

// Sizes in elements of type `Sum`, in which all is computed. A tile of the weights, as of any operand, has `columns`
// columns; as many rows of the other side are worked on at a time. Each lane of a row has a piece of each of its bands.
template <class Sum> struct Tile {
    static constexpr int piece = Piece<Sum>::size;
    static constexpr int columns = row_pieces * piece;
    static constexpr int leading = columns + piece;
    static constexpr int band = lanes * piece;
    static constexpr int thread_columns = columns / lanes;
};

// -- numbers ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float exponential(float x) { return expf(x); }
// A call: many at once, inlined, would need more registers than there are.
__device__ __noinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

// A product that is rounded before anything is subtracted from it: one that overflows stays infinite.
__device__ __forceinline__ float rounded_product(float x, float y) { return __fmul_rn(x, y); }
__device__ __forceinline__ double rounded_product(double x, double y) { return __dmul_rn(x, y); }

template <class Sum> __device__ __forceinline__ Sum infinity() { return Sum(__int_as_float(0x7f800000)); }

// What is subtracted from scores before exp: `top`, but 0 where that is -inf, so that all weights are 0.
template <class Sum> __device__ __forceinline__ Sum finite_shift(Sum top) {
    return top == -infinity<Sum>() ? Sum(0) : top;
}

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ double widened(double x) { return x; }
__device__ __forceinline__ float widened(f16 x) { return to_float(x); }
__device__ __forceinline__ float widened(bf16 x) { return to_float(x); }

template <class T, class Sum> struct Narrow {
    static __device__ __forceinline__ T of(Sum x) { return from_float<T>(x); }
};
template <class T> struct Narrow<T, T> {
    static __device__ __forceinline__ T of(T x) { return x; }
};

// -- memory -----------------------------------------------------------------------------------------------------------

template <class Sum> __device__ __forceinline__ Piece<Sum> load(const Sum *shared) {
    return *reinterpret_cast<const Piece<Sum> *>(shared);
}

// As many elements of memory as a piece has; `aligned` says that they lie at a multiple of their size.
template <class T, int size> struct alignas(size * sizeof(T)) Elements {
    T at[size];
};

// Columns `column` on of a row of `width`, zeros beyond it.
template <bool aligned, class Sum, class T>
__device__ __forceinline__ Piece<Sum> load_row(const T *row, int column, int width) {
    constexpr int size = Piece<Sum>::size;
    Piece<Sum> piece;
    if (aligned && column + size <= width) {
        const auto elements = *reinterpret_cast<const Elements<T, size> *>(row + column);
#pragma unroll
        for (int i = 0; i < size; ++i) piece.at[i] = widened(elements.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < size; ++i) piece.at[i] = column + i < width ? widened(row[column + i]) : Sum(0);
    }
    return piece;
}

template <bool aligned, class Sum, class T>
__device__ __forceinline__ void store_row(T *row, int column, int width, const Sum (&values)[Piece<Sum>::size]) {
    constexpr int size = Piece<Sum>::size;
    if (aligned && column + size <= width) {
        Elements<T, size> elements;
#pragma unroll
        for (int i = 0; i < size; ++i) elements.at[i] = Narrow<T, Sum>::of(values[i]);
        *reinterpret_cast<Elements<T, size> *>(row + column) = elements;
    } else {
#pragma unroll
        for (int i = 0; i < size; ++i)
            if (column + i < width) row[column + i] = Narrow<T, Sum>::of(values[i]);
    }
}

// `count` rows from `first` on of a matrix, columns `column` on, into a tile; zeros from row `end` and `width` on.
template <int count, bool aligned, class Sum, class T>
__device__ __forceinline__ void load_tile(
    Sum *tile, const Matrix<const T> &matrix, int first, int end, int column, int width) {
    const int at = threadIdx.x % row_pieces * Piece<Sum>::size;
#pragma unroll(aligned ? 4 : 1)
    for (int row = threadIdx.x / row_pieces; row < count; row += threads / row_pieces) {
        Piece<Sum> values = {};
        if (first + row < end) values = load_row<aligned, Sum>(matrix.row(first + row), column + at, width);
        *reinterpret_cast<Piece<Sum> *>(tile + row * Tile<Sum>::leading + at) = values;
    }
}

// -- products ---------------------------------------------------------------------------------------------------------

// Where a thread is: it has rows `row`, `row` + 4, ... of the block and columns `column`, `column` + 8, ... of a tile.
struct Place {
    int row, column;
    __device__ __forceinline__ int row_at(int i) const { return row + row_step * i; }
    __device__ __forceinline__ int column_at(int j) const { return column + lanes * j; }
};

__device__ __forceinline__ Place place_of_thread() {
    const int lane = threadIdx.x % 32;
    return {int(threadIdx.x) / 32 * warp_rows + lane / lanes, lane % lanes};
}

template <class Sum> using Scores = Sum[thread_rows][Tile<Sum>::thread_columns];

// scores = left right^T, for the block's rows from `left_first` on and the tile's from `right_first` on, of `width`.
// Ends with a barrier: what was in shared memory may be overwritten.
template <bool aligned, class Sum, class T>
__device__ __forceinline__ void multiply(
    Scores<Sum> &scores, Sum *left_tile, Sum *right_tile, const Place &place, int width, const Matrix<const T> &left,
    int left_first, int left_end, const Matrix<const T> &right, int right_first, int right_end) {
    using tile = Tile<Sum>;
#pragma unroll
    for (auto &row : scores)
#pragma unroll
        for (auto &score : row) score = 0;
    for (int column = 0; column < width; column += tile::columns) {
        load_tile<rows, aligned>(left_tile, left, left_first, left_end, column, width);
        load_tile<tile::columns, aligned>(right_tile, right, right_first, right_end, column, width);
        __syncthreads();
        const int depth = min(width - column, tile::columns);
#pragma unroll 1
        for (int k = 0; k < depth; k += tile::piece) {
            Piece<Sum> of_left[thread_rows];
#pragma unroll
            for (int i = 0; i < thread_rows; ++i) of_left[i] = load(left_tile + place.row_at(i) * tile::leading + k);
#pragma unroll
            for (int j = 0; j < tile::thread_columns; ++j) {
                const auto of_right = load(right_tile + place.column_at(j) * tile::leading + k);
#pragma unroll
                for (int i = 0; i < thread_rows; ++i)
#pragma unroll
                    for (int v = 0; v < tile::piece; ++v) scores[i][j] += of_left[i].at[v] * of_right.at[v];
            }
        }
        __syncthreads();
    }
}

// A thread's part of the block's result: bands of columns, of each row one piece.
template <class Sum, int bands> using Sums = Sum[bands][thread_rows][Piece<Sum>::size];

// sums += weights source, for columns `column` on of the tile's rows from `first` on. Ends with a barrier.
template <int bands, bool aligned, class Sum, class T>
__device__ __forceinline__ void add_products(
    Sums<Sum, bands> &sums, const Sum *weights, Sum *source_tile, const Place &place, const Matrix<const T> &source,
    int first, int end, int column, int width) {
    using tile = Tile<Sum>;
    constexpr int together = tile::columns / tile::band;  // bands of one tile
#pragma unroll
    for (int band = 0; band < bands; band += together) {
        load_tile<tile::columns, aligned>(source_tile, source, first, end, column + band * tile::band, width);
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < tile::columns; k += tile::piece) {
            Piece<Sum> of_weights[thread_rows];
#pragma unroll
            for (int i = 0; i < thread_rows; ++i) of_weights[i] = load(weights + place.row_at(i) * tile::leading + k);
#pragma unroll
            for (int v = 0; v < tile::piece; ++v)
#pragma unroll
                for (int b = 0; b < together && band + b < bands; ++b) {
                    const auto of_source =
                        load(source_tile + (k + v) * tile::leading + b * tile::band + place.column * tile::piece);
#pragma unroll
                    for (int i = 0; i < thread_rows; ++i)
#pragma unroll
                        for (int u = 0; u < tile::piece; ++u)
                            sums[band + b][i][u] += of_weights[i].at[v] * of_source.at[u];
                }
        }
        __syncthreads();
    }
}

template <int bands, bool aligned, class Sum, class T>
__device__ __forceinline__ void store_sums(
    const Sums<Sum, bands> &sums, const Place &place, const Matrix<T> &target, int first, int end, int column,
    int width) {
#pragma unroll
    for (int i = 0; i < thread_rows; ++i) {
        const int row = first + place.row_at(i);
        if (row >= end) continue;
#pragma unroll
        for (int band = 0; band < bands; ++band) {
            const int at = column + band * Tile<Sum>::band + place.column * Piece<Sum>::size;
            store_row<aligned>(target.row(row), at, width, sums[band][i]);
        }
    }
}

}  // namespace eir::simt
