// Tiles of matrices in shared memory, and their pieces in the registers of a warp: what the three kernels of
// FlashAttention share (Dao, arXiv:2307.08691).
namespace eir::flash {

constexpr float log2_e = 1.4426950408889634f;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Of this thread; a shuffle tells the compiler that it is the same for all lanes.
__device__ __forceinline__ int warp_number() { return __shfl_sync(0xffffffff, int(threadIdx.x / 32), 0); }

__device__ constexpr int divided_up(int count, int size) { return (count + size - 1) / size; }

// What is subtracted from scores before exp: not the maximum, or the logsumexp, where all are masked, so that weights
// are 0 there and not NaN.
__device__ __forceinline__ float finite_shift(float top) { return top == -infinity() ? 0.0f : top; }

// The weight of a score, times the scale rounded as the logsumexp was: where scores are large, and one of a row is all,
// their difference is 0 then, which no multiply-add may change.
__device__ __forceinline__ float weight_of(float score, float scale, float logsumexp) {
    return exp2_approximate((__fmul_rn(score, scale) - logsumexp) * log2_e);
}

// What a kernel is called with besides its views. Heads of keys lie along two batch axes, the second of extent
// `inner_heads`, and `group` heads of queries share each.
struct Sizes {
    int queries, keys, inner_heads, group;
    float scale;
};

// Rows of `width` elements of a half type in shared memory, padded with zeros to whole fragments. A row and the next
// lie an odd number of 16 bytes apart, so that the 8 rows that ldmatrix reads at once lie in different banks.
template <class T, int width> struct Tile {
    static constexpr int columns = divided_up(width, 16) * 16, pitch = columns + 8;
    T* data;

    __device__ __forceinline__ T* at(int row, int column) const { return data + row * pitch + column; }
};

struct alignas(16) Words {
    unsigned word[4];
};

// Begins to copy `rows` rows from row `first` on of a matrix of `count` rows. Rows and columns outside of it are 0.
// 8 threads in turn read 128 bytes of a row. Rows that are not `aligned` to 16 bytes are copied at once, by elements.
template <int rows, int threads, bool aligned, class T, int width>
__device__ __forceinline__ void load_rows(Tile<T, width> tile, Matrix<const T> matrix, int first, int count) {
    constexpr int columns = Tile<T, width>::columns, rows_at_once = threads / 8;
    static_assert(rows % rows_at_once == 0, "every thread copies as many rows");
    const int step = int(matrix.leading), first_column = threadIdx.x % 8 * 8;  // then 32 x 32 bits make an offset
#pragma unroll(aligned ? rows : 1)
    for (int pass = 0; pass < rows; pass += rows_at_once) {
        const int row = pass + threadIdx.x / 8;
        const T* from = matrix.base + (long long)(first + row) * step;
#pragma unroll
        for (int column = first_column; column < first_column + columns; column += 64) {
            if (columns % 64 != 0 && column >= columns) continue;
            T* to = tile.at(row, column);
            if constexpr (aligned) {
                cp_async_16(to, from + column, first + row < count && column < width);
            } else {
#pragma unroll
                for (int j = 0; j < 8; ++j) to[j] = first + row < count && column + j < width ? from[column + j] : T{0};
            }
        }
    }
}

// Copies rows from row 0 of the tile on into row `first` and those after it of a matrix of `count` rows.
template <int rows, int threads, bool aligned, class T, int width>
__device__ __forceinline__ void store_rows(Matrix<T> matrix, Tile<T, width> tile, int first, int count) {
    for (int row = threadIdx.x / 8; row < rows && first + row < count; row += threads / 8)
        for (int column = threadIdx.x % 8 * 8; column < width; column += 64) {
            T* to = matrix.row(first + row) + column;
            const T* from = tile.at(row, column);
            if constexpr (aligned) {
                *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(from);
            } else {
                for (int j = 0; j < 8 && column + j < width; ++j) to[j] = from[j];
            }
        }
}

// -- fragments: see target.cuh for which lane holds what --------------------------------------------------------------

// 16 x 16 of a left operand, whose rows lie in rows of the tile.
template <class T, int width>
__device__ __forceinline__ void load_left(unsigned (&a)[4], Tile<T, width> tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    ldmatrix_x4(a, tile.at(row + lane % 16, column + lane / 16 * 8));
}

// Two neighbours, 16 x 8 each, of a right operand, whose columns lie in rows of the tile.
template <class T, int width>
__device__ __forceinline__ void load_right(unsigned (&b)[2][2], Tile<T, width> tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    unsigned r[4];
    ldmatrix_x4(r, tile.at(row + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

// Two neighbours, 16 x 8 each, of a right operand, whose rows lie in rows of the tile.
template <class T, int width>
__device__ __forceinline__ void load_right_transposed(unsigned (&b)[2][2], Tile<T, width> tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    unsigned r[4];
    ldmatrix_x4_transposed(r, tile.at(row + lane % 16, column + lane / 16 * 8));
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

// 16 x 16 of a left operand from two neighbours, 16 x 8 each, of a result.
template <class T>
__device__ __forceinline__ void as_left(unsigned (&a)[4], const float (&d)[4], const float (&next)[4]) {
    a[0] = pack2<T>(d[0], d[1]);
    a[1] = pack2<T>(d[2], d[3]);
    a[2] = pack2<T>(next[0], next[1]);
    a[3] = pack2<T>(next[2], next[3]);
}

// 16 `lefts` rows of a left operand, from `row` of a tile on: read when a product needs them, or held in registers.
// A loop over columns is `unrolled` as far as there are registers for what it loads ahead.
template <class T, int width, int lefts> struct LeftInTile {
    static constexpr int unrolled = lefts > 1 ? 2 : Tile<T, width>::columns / 16;
    Tile<T, width> tile;
    int row;

    __device__ __forceinline__ void load(unsigned (&a)[4], int i, int column) const {
        load_left(a, tile, row + i * 16, column);
    }
};

template <class T, int width, int lefts> struct LeftInRegisters {
    static constexpr int unrolled = Tile<T, width>::columns / 16;
    unsigned held[lefts][unrolled][4];

    __device__ __forceinline__ LeftInRegisters(Tile<T, width> tile, int row) {
#pragma unroll
        for (int i = 0; i < lefts; ++i)
#pragma unroll
            for (int step = 0; step < unrolled; ++step) load_left(held[i][step], tile, row + i * 16, step * 16);
    }

    __device__ __forceinline__ void load(unsigned (&a)[4], int i, int column) const {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = held[i][column / 16][r];
    }
};

template <bool in_registers, class T, int width, int lefts> struct LeftOf {
    using type = LeftInTile<T, width, lefts>;
};
template <class T, int width, int lefts> struct LeftOf<true, T, width, lefts> {
    using type = LeftInRegisters<T, width, lefts>;
};

// result[i][j] = left right^T with 16 `lefts` rows of `left` and 8 `rights` rows of `right` from `right_row` on.
template <class Left, class T, int width, int lefts, int rights>
__device__ __forceinline__ void multiply_rows(
    float (&result)[lefts][rights][4], const Left& left, Tile<T, width> right, int right_row) {
#pragma unroll
    for (int i = 0; i < lefts; ++i)
#pragma unroll
        for (int j = 0; j < rights; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) result[i][j][r] = 0;
#pragma unroll Left::unrolled
    for (int column = 0; column < Tile<T, width>::columns; column += 16) {
        unsigned a[lefts][4], b[2][2];
#pragma unroll
        for (int i = 0; i < lefts; ++i) left.load(a[i], i, column);
#pragma unroll
        for (int j = 0; j < rights; j += 2) {
            load_right(b, right, right_row + j * 8, column);
#pragma unroll
            for (int i = 0; i < lefts; ++i) {
                mma_m16n8k16<T>(result[i][j], a[i], b[0]);
                mma_m16n8k16<T>(result[i][j + 1], a[i], b[1]);
            }
        }
    }
}

// sum[i][j] += left right: `left`, in registers, has 8 `inners` columns, and `right` as many rows from `right_row` on.
template <class T, int width, int lefts, int inners, int columns>
__device__ __forceinline__ void add_product(
    float (&sum)[lefts][columns][4], const float (&left)[lefts][inners][4], Tile<T, width> right, int right_row) {
#pragma unroll
    for (int inner = 0; inner < inners; inner += 2) {
        unsigned a[lefts][4], b[2][2];
#pragma unroll
        for (int i = 0; i < lefts; ++i) as_left<T>(a[i], left[i][inner], left[i][inner + 1]);
#pragma unroll
        for (int j = 0; j < columns; j += 2) {
            load_right_transposed(b, right, right_row + inner * 8, j * 8);
#pragma unroll
            for (int i = 0; i < lefts; ++i) {
                mma_m16n8k16<T>(sum[i][j], a[i], b[0]);
                mma_m16n8k16<T>(sum[i][j + 1], a[i], b[1]);
            }
        }
    }
}

// Rounds a result times `factor` into a tile from `row` on.
template <class T, int width, int lefts, int columns>
__device__ __forceinline__ void store_result(
    Tile<T, width> tile, int row, const float (&result)[lefts][columns][4], float factor) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < lefts; ++i)
#pragma unroll
        for (int j = 0; j < columns; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                T* to = tile.at(row + i * 16 + half * 8 + lane / 4, j * 8 + lane % 4 * 2);
                const float* pair = result[i][j] + half * 2;
                *reinterpret_cast<unsigned*>(to) = pack2<T>(pair[0] * factor, pair[1] * factor);
            }
}

}  // namespace eir::flash
