//! Sums of floats in a fixed number of virtual lanes: the one order in which this engine adds floats.

/// Virtual lanes of every float sum: one AVX-512 register, two of AVX2, four of NEON.
pub const LANES: usize = 16;

/// Adds the lanes in a fixed tree: 16 to 8 to 4 to 2 to 1, lane `j` taking lane `j + half`.
#[inline(always)]
pub fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// Virtual lanes of the dot products of plain numbers: four times [`LANES`], as llama.cpp adds them on AVX-512.
pub const WIDE_LANES: usize = 64;

/// Adds the quarters of [`WIDE_LANES`], 0 and 2, 1 and 3, then both, and the rest as [`sum_lanes`].
#[inline(always)]
pub fn sum_wide_lanes(lanes: &[f32; WIDE_LANES]) -> f32 {
    sum_lanes(std::array::from_fn(|j| {
        let quarter = |q: usize| lanes[LANES * q + j];
        (quarter(0) + quarter(2)) + (quarter(1) + quarter(3))
    }))
}

/// Adds eight lanes in the tree of [`sum_lanes`].
#[inline(always)]
pub fn sum_eight(lanes: [f32; 8]) -> f32 {
    let four: [f32; 4] = std::array::from_fn(|j| lanes[j] + lanes[j + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}

/// Sum of `f` over all elements, in f64: element `i` is added into lane `i mod 16`, and lanes end in a tree like that of
/// [`sum_lanes`].
#[inline(always)]
pub fn sum_wide(x: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let chunks = x.chunks_exact(LANES);
    let tail = chunks.remainder();
    for chunk in chunks {
        for j in 0..LANES {
            lanes[j] += f64::from(f(chunk[j]));
        }
    }
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane += f64::from(f(*x));
    }
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_goes_into_the_first_lanes() {
        let x: Vec<f32> = (0..21).map(|i| i as f32).collect();
        assert_eq!(sum_wide(&x, |x| 2.0 * x), 420.0);
        assert_eq!(sum_wide(&[], |x| x).to_bits(), 0.0f64.to_bits());
    }

    #[test]
    fn lanes_are_added_as_a_tree_and_not_in_sequence() {
        // 1e8 + 1 loses the 1; paired with its neighbour eight lanes on, -1e8 cancels first.
        let mut lanes = [0.0; LANES];
        (lanes[0], lanes[8], lanes[1]) = (1e8, -1e8, 1.0);
        assert_eq!(sum_lanes(lanes), 1.0);
    }
}
