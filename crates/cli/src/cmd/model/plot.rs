//! Two distributions of response times side by side, as SVG.

use super::validate::Validated;
use seekless_report::table::escape;
use seekless_units::Nanos;
use std::fmt::Write;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 44.0;
const TOP: f64 = 34.0;
const CELL: (f64, f64) = (WIDTH + 70.0, HEIGHT + 80.0);
const COLUMNS: usize = 2;
/// Points of each curve.
const POINTS: usize = 400;
/// Share of the requests that the time axis covers.
const SHOWN: f64 = 0.998;

/// The plots of all drives as one picture.
pub(super) fn svg(drives: &[Validated]) -> String {
    let rows = drives.len().div_ceil(COLUMNS);
    let (width, height) = (CELL.0 * COLUMNS as f64, CELL.1 * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, one) in drives.iter().enumerate() {
        let (x, y) = ((at % COLUMNS) as f64 * CELL.0, (at / COLUMNS) as f64 * CELL.1);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel(&mut svg, one);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn sorted(times: &[Nanos]) -> Vec<f64> {
    let mut times: Vec<f64> = times.iter().map(|time| time.get() as f64 / 1e6).collect();
    times.sort_unstable_by(f64::total_cmp);
    times
}

fn quantile(times: &[f64], share: f64) -> f64 {
    let at = (share * times.len() as f64) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

fn panel(svg: &mut String, one: &Validated) {
    let (measured, modelled) = (sorted(&one.measured), sorted(&one.modelled));
    let longest = quantile(&measured, SHOWN).max(quantile(&modelled, SHOWN)).max(1e-6);
    let step = step(longest);
    let longest = (longest / step).ceil() * step;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"20\" font-weight=\"bold\">{}: demerit {:.3} ms, {:.1}%</text>",
        escape(&one.drive),
        one.demerit.demerit_ms,
        one.demerit.demerit_percent,
    );
    axes(svg, longest, step);
    curve(svg, &measured, longest, "#444", "");
    curve(svg, &modelled, longest, "#d03020", " stroke-dasharray=\"5 3\"");
    let (x, y) = (LEFT + WIDTH - 90.0, TOP + HEIGHT - 30.0);
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" fill=\"#444\">measured</text>\
         <text x=\"{x}\" y=\"{}\" fill=\"#d03020\">modelled</text>",
        y + 16.0
    );
}

/// Distance between two marks of the time axis, rounded up to 1, 2, 5 or 10 times a power of ten.
fn step(longest: f64) -> f64 {
    let rough = longest / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough)
}

fn axes(svg: &mut String, longest: f64, step: f64) {
    let bottom = TOP + HEIGHT;
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#999\"/>"
    );
    for mark in 0..=(longest / step).round() as u32 {
        let time = f64::from(mark) * step;
        let x = LEFT + time / longest * WIDTH;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{time}</text>",
            bottom + 16.0
        );
    }
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let y = bottom - share * HEIGHT + 4.0;
        let _ = writeln!(svg, "<text x=\"38\" y=\"{y:.1}\" text-anchor=\"end\">{share}</text>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">response time, ms (share of requests at or below)</text>",
        LEFT + WIDTH / 2.0,
        bottom + 34.0
    );
}

fn curve(svg: &mut String, times: &[f64], longest: f64, colour: &str, dash: &str) {
    let mut points = String::new();
    for n in 0..=POINTS {
        let share = n as f64 / POINTS as f64;
        let x = LEFT + (quantile(times, share) / longest).min(1.0) * WIDTH;
        let y = TOP + HEIGHT - share * HEIGHT;
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let points = points.trim_end();
    let _ = writeln!(
        svg,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"{dash}/>"
    );
}
