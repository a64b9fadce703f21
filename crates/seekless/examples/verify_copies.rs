//! Compares images with the first one, and checks each: exit code 1 where one differs or is
//! damaged.
//!
//! ```text
//! cargo run -p seekless --example verify_copies -- golden.img copy1.img copy2.img
//! ```

use seekless::{Check, Outcome, compare};
use std::error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn error::Error>> {
    let mut paths = std::env::args().skip(1);
    let golden = seekless::open(paths.next().ok_or("usage: verify_copies GOLDEN COPY...")?)?;
    let mut code = ExitCode::SUCCESS;
    for path in paths {
        let checked = Check::of(&path).run()?;
        for finding in &checked.findings {
            println!("{path}: {}: {}", finding.code, finding.message);
        }
        let differences = compare(&golden, &seekless::open(&path)?)?;
        for difference in &differences {
            println!("{path}: {}: {:?}", difference.path.display(), difference.change);
        }
        if checked.outcome != Outcome::Clean || !differences.is_empty() {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
