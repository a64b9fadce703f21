//! Times of head movements.

use super::spec::{CurveSpec, SeekSpec};
use seekless_units::Nanos;

/// Converts milliseconds to nanoseconds; negative values become zero.
pub(super) fn nanos(ms: f64) -> u64 {
    // The conversion of a float beyond the range saturates.
    (ms * 1e6).round() as u64
}

/// A cylinder and a surface: a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Place {
    pub(super) cylinder: u32,
    pub(super) head: u32,
}

/// The times of all movements.
#[derive(Clone, Debug)]
pub(super) struct Seek {
    table: Vec<(u32, f64)>,
    curves: Vec<CurveSpec>,
    head_switch: f64,
    write_settle: f64,
    switch_settle: f64,
}

impl Seek {
    pub(super) fn new(spec: &SeekSpec) -> Self {
        Self {
            table: spec.table.clone(),
            curves: spec.curve.clone(),
            head_switch: spec.head_switch_ms,
            write_settle: spec.write_settle_ms,
            switch_settle: spec.switch_settle_ms.unwrap_or(spec.write_settle_ms),
        }
    }

    /// Milliseconds for a distance in cylinders.
    pub(super) fn distance(&self, distance: u32) -> f64 {
        if distance == 0 {
            return 0.0;
        }
        if self.table.is_empty() { self.on_curve(distance) } else { self.in_table(distance) }
    }

    /// Interpolates linearly between the measured points and extrapolates with the slope of the
    /// last two.
    fn in_table(&self, distance: u32) -> f64 {
        let table = &self.table;
        let at = table.partition_point(|point| point.0 < distance).clamp(1, table.len().max(2) - 1);
        let (Some(&low), Some(&high)) = (table.get(at - 1), table.get(at)) else {
            return table.first().map_or(0.0, |only| only.1);
        };
        if distance < low.0 {
            return low.1;
        }
        let part = f64::from(distance - low.0) / f64::from(high.0 - low.0);
        (low.1 + part * (high.1 - low.1)).max(0.0)
    }

    fn on_curve(&self, distance: u32) -> f64 {
        let at = self.curves.partition_point(|curve| curve.from <= distance);
        let Some(curve) = self.curves.get(at.saturating_sub(1)) else { return 0.0 };
        let distance = f64::from(distance);
        (curve.constant + curve.sqrt * distance.sqrt() + curve.linear * distance).max(0.0)
    }

    /// The time from one track to another: the arm and the head switch move in parallel.
    pub(super) fn between(&self, from: Place, to: Place, write: bool) -> Nanos {
        let cylinders = from.cylinder.abs_diff(to.cylinder);
        let arm = self.distance(cylinders);
        let switch = if from.head == to.head { 0.0 } else { self.head_switch };
        let moved = arm.max(switch);
        let settle = if cylinders > 1 { self.write_settle } else { self.switch_settle };
        let settled = if moved > 0.0 && write { moved + settle } else { moved };
        Nanos::new(nanos(settled.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cylinder: u32, head: u32) -> Place {
        Place { cylinder, head }
    }

    #[test]
    fn a_table_is_linear_between_and_beyond_its_points() {
        let table = vec![(1, 1.0), (10, 2.8), (100, 2.8), (1000, 11.8)];
        let seek = Seek::new(&SeekSpec { table, ..SeekSpec::default() });
        for (distance, ms) in
            [(0, 0.0), (1, 1.0), (5, 1.8), (10, 2.8), (50, 2.8), (550, 7.3), (2000, 21.8)]
        {
            assert!((seek.distance(distance) - ms).abs() < 1e-9, "{distance}");
        }
        let single = Seek::new(&SeekSpec { table: vec![(4, 2.0)], ..SeekSpec::default() });
        assert_eq!((single.distance(1), single.distance(9)), (2.0, 2.0));
    }

    #[test]
    fn curves_join() {
        let curve = vec![
            CurveSpec { from: 1, constant: 3.81, sqrt: 0.33, linear: 0.0 },
            CurveSpec { from: 300, constant: 7.75, sqrt: 0.0, linear: 0.0059 },
        ];
        let seek = Seek::new(&SeekSpec { curve, ..SeekSpec::default() });
        assert!((seek.distance(100) - 7.11).abs() < 1e-9);
        assert!((seek.distance(1000) - 13.65).abs() < 1e-9);
    }

    #[test]
    fn head_switch_and_settling_add_as_they_should() {
        let spec = SeekSpec {
            head_switch_ms: 0.9,
            write_settle_ms: 0.5,
            table: vec![(1, 0.6), (2, 2.0)],
            ..SeekSpec::default()
        };
        let seek = Seek::new(&spec);
        let time = |to, write| seek.between(place(5, 1), to, write).get();
        assert_eq!(time(place(5, 1), true), 0);
        assert_eq!(time(place(5, 2), false), 900_000);
        assert_eq!(time(place(6, 2), false), 900_000);
        assert_eq!(time(place(7, 2), true), 2_500_000);
    }
}
