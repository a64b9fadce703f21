//! How well two orders agree.

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let same = values.iter().filter(|other| *other == value).count();
        below as f64 + (same as f64 + 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

/// Spearman's rank correlation of pairs; `None` for fewer than two, or where
/// one side is all alike.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let (left, right): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (left, right) = (ranks(&left), ranks(&right));
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let scale = (product(&left, &left) * product(&right, &right)).sqrt();
    (scale > 0.0).then(|| product(&left, &right) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_textbook() {
        let close = |pairs: &[(f64, f64)], expected: f64| {
            let found = spearman(pairs).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}");
        };
        close(&[(1.0, 10.0), (2.0, 200.0), (3.0, 201.0)], 1.0);
        close(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0);
        // d = 2, -1, -1: 1 - 6 * 6 / (3 * 8).
        close(&[(1.0, 3.0), (2.0, 1.0), (3.0, 2.0)], -0.5);
        // Ties share ranks 2.5: covariance 4.5 of 5 and 4.5.
        close(&[(1.0, 1.0), (2.0, 2.0), (3.0, 2.0), (4.0, 3.0)], 4.5 / (5.0f64 * 4.5).sqrt());
        assert_eq!(spearman(&[(1.0, 1.0)]), None);
        assert_eq!(spearman(&[(1.0, 5.0), (2.0, 5.0)]), None);
    }
}
