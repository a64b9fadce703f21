//! Round numbers for axes.

use seekless_units::ByteLen;

/// Round numbers from zero to `most`, at most `about` besides zero.
#[must_use]
pub fn ticks(most: f64, about: u32) -> Vec<f64> {
    if !most.is_finite() || most <= 0.0 {
        return vec![0.0];
    }
    let rough = most / f64::from(about.max(1));
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    // Multiples are rounded again: three times 0.1 is a little more than 0.3.
    let round = |n: u32| (f64::from(n) * step / power).round() * power;
    let ticks = (0..).map(round).take_while(|tick| *tick <= most * 1.000_001);
    ticks.map(|tick| format!("{tick:.9}").parse().unwrap_or(tick)).collect()
}

/// A length in a suitable unit.
#[must_use]
pub fn size_unit(len: ByteLen) -> (&'static str, f64) {
    let len = len.get() as f64;
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20)];
    let of = |power: i32| len / 2f64.powi(power);
    let fit = units.into_iter().find(|(_, power)| of(*power) >= 2.0);
    fit.map_or(("KiB", of(10)), |(name, power)| (name, of(power)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round() {
        assert_eq!(ticks(633.4, 6), [0.0, 200.0, 400.0, 600.0]);
        assert_eq!(ticks(0.35, 4), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(ticks(10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0]);
    }

    #[test]
    fn units_suit_their_lengths() {
        assert_eq!(size_unit(ByteLen::new(7928 << 20)), ("GiB", 7.742_187_5));
        assert_eq!(size_unit(ByteLen::new(1 << 40)), ("GiB", 1024.0));
        assert_eq!(size_unit(ByteLen::new(1 << 30)), ("MiB", 1024.0));
        assert_eq!(size_unit(ByteLen::new(512)), ("KiB", 0.5));
    }
}
