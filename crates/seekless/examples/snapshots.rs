//! Takes a snapshot of a UFS image, or of one that is mounted, and removes the oldest ones beyond a
//! number.
//!
//! ```text
//! cargo run -p seekless --example snapshots -- disk.ufs monday 3
//! ```

use seekless::Snapshots;
use std::error;

fn main() -> Result<(), Box<dyn error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [image, name, most] = args.as_slice() else {
        return Err("usage: snapshots IMG NAME MOST".into());
    };
    let snapshots = Snapshots::of(image);
    snapshots.take(name)?;
    let listed = snapshots.list()?;
    let beyond = listed.len().saturating_sub(most.parse()?);
    let oldest: Vec<_> = listed.iter().take(beyond).filter_map(|it| it.path.as_ref()).collect();
    if !oldest.is_empty() {
        snapshots.remove(oldest)?;
    }
    for snapshot in snapshots.list()? {
        println!("{}", serde_json::to_string(&snapshot)?);
    }
    Ok(())
}
